package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/hinted"
)

// Exit codes. exec returns the code of its command, and ExitExec for its own errors.
const (
	ExitNo          = 1   // the answer is no: unhealthy, failed, changes pending, or a fault in a manifest
	ExitFault       = 2   // the command failed: wrong arguments, no server, or a refusal
	ExitChanged     = 2   // converge: it changed something, see MarkManaged
	ExitExec        = 125 // exec: the command could not be run
	ExitInterrupted = 130
)

// ExitError is an error with an exit code. Without Err nothing is printed.
type ExitError struct {
	Code int
	Err  error
}

// Error returns the text of Err.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *ExitError) Unwrap() error { return e.Err }

// UsageError is a wrong command line. Command is the command whose help explains it.
type UsageError struct {
	Command string
	Message string
}

// Error returns the message.
func (e *UsageError) Error() string { return e.Message }

// managedAnnotation marks the commands for configuration management, see MarkManaged.
const managedAnnotation = "berth-managed"

// MarkManaged marks a command for configuration management. Such a command ends with ExitChanged after a change, so its
// faults end with ExitNo.
func MarkManaged(cmd *cobra.Command) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[managedAnnotation] = "true"
}

// FaultCode returns the exit code of the faults of a command.
func FaultCode(cmd *cobra.Command) int {
	if cmd.Annotations[managedAnnotation] != "" {
		return ExitNo
	}
	return ExitFault
}

// CommandError returns the error of a command with the exit code that faults of the command have.
func CommandError(cmd *cobra.Command, err error) error {
	if _, asked := errors.AsType[*ExitError](err); err == nil || asked {
		return err
	}
	return &ExitError{Code: FaultCode(cmd), Err: err}
}

// EndOfStream returns the error of a command that runs until an interrupt, such as `berth logs --follow`. An interrupt
// ends it without a message.
func EndOfStream(err error) error {
	if errors.Is(err, context.Canceled) {
		return &ExitError{Code: ExitInterrupted}
	}
	return err
}

// StoppedWaiting returns the error of a wait. After an interrupt it first prints what continues, such as "the rollout
// continues.".
func (s *Session) StoppedWaiting(ctx context.Context, err error, continues string) error {
	if ctx.Err() == nil {
		return err
	}
	s.Messagef("Stopped waiting; %s", continues)
	return EndOfStream(ctx.Err())
}

// ExitCode prints an error, if there is one, and returns its exit code.
func (s *Session) ExitCode(ctx context.Context, err error) int {
	if err == nil {
		return 0
	}
	exit, asked := errors.AsType[*ExitError](err)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		s.Messagef("berth: interrupted")
		return ExitInterrupted
	}
	if !asked || exit.Err != nil {
		s.messageWrapped("berth: " + ErrorText(err))
		if hint := s.Hint(err); hint != "" {
			s.messageWrapped(hint)
		}
	}
	if asked {
		return exit.Code
	}
	return ExitFault
}

// messageWrapped prints a message on standard error. On a terminal its lines break between words.
func (s *Session) messageWrapped(text string) {
	text = s.Shorten(text)
	width := output.TerminalWidth(s.Stderr)
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if width == 0 || utf8.RuneCountInString(line) <= width {
			s.Messagef("%s", line)
			continue
		}
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		for _, part := range output.Wrap(line, width-len(indent)) {
			s.Messagef("%s%s", indent, part)
		}
	}
}

// Hint returns what to do about an error, or "".
func (s *Servers) Hint(err error) string {
	if e, ok := errors.AsType[*UsageError](err); ok {
		return "See '" + e.Command + " --help'."
	}
	if e, ok := errors.AsType[*hinted.Error](err); ok {
		return e.Hint
	}
	if hint := hinted.TLS(err); hint != "" {
		return hint
	}
	switch {
	case errors.Is(err, client.ErrUnreachable) && strings.Contains(err.Error(), "malformed HTTP"):
		return s.otherProgramHint()
	case errors.Is(err, client.ErrUnreachable):
		if strings.Contains(s.FindAddresses(), "https://") {
			return "Check that the servers run, and that this machine reaches their https addresses " +
				"(--addr, BERTH_ADDR)."
		}
		return "Start a server with 'berth dev', or name one with --addr or BERTH_ADDR."
	}
	if hint := s.answerHint(err); hint != "" {
		return hint
	}
	return systemHint(err)
}

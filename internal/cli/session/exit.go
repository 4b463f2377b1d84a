package session

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/hinted"
)

// Exit codes. exec passes the code of its command through and uses exitExec for its own faults.
const (
	ExitNo          = 1   // the answer is no: unhealthy, failed, something to change, a fault that validate found
	ExitFault       = 2   // it could not be done: wrong arguments, no server, refused
	ExitExec        = 125 // exec: the command could not be run
	ExitInterrupted = 130
)

// ExitError is an error that asks for an exit code. Without an error there is nothing to print.
type ExitError struct {
	Code int
	Err  error
}

// Error returns the error's text.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns the error.
func (e *ExitError) Unwrap() error { return e.Err }

// UsageError is a fault of the command line, with the command whose help tells more.
type UsageError struct {
	Command string
	Message string
}

// Error returns one clear line.
func (e *UsageError) Error() string { return e.Message }

// ExitCode prints an error, if there is one, and returns the code for it.
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
		s.Messagef("berth: %s", ErrorText(err))
		if hint := s.Hint(err); hint != "" {
			s.Messagef("%s", hint)
		}
	}
	if asked {
		return exit.Code
	}
	return ExitFault
}

// Hint says what to do about an error, or nothing.
func (s *Session) Hint(err error) string {
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
			return "See that the servers run and that their https addresses are reached from here (--addr, BERTH_ADDR)."
		}
		return "Start a server with 'berth dev', or name one with --addr or BERTH_ADDR."
	}
	if hint := s.answerHint(err); hint != "" {
		return hint
	}
	return systemHint(err)
}

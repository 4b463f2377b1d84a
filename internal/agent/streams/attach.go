package streams

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"syscall"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logs"
	"github.com/berthd/berth/internal/transport"
)

// attachSignals are the signals that users may send to a program.
var attachSignals = map[string]syscall.Signal{
	"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "TERM": syscall.SIGTERM,
	"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "CONT": syscall.SIGCONT, "WINCH": syscall.SIGWINCH,
}

// attach sends the output of a program as it appears, until the program ends, and passes signals to the program. It
// returns the program's exit code. A slow reader loses lines and gets their number.
func (s *Server) attach(
	ctx context.Context, cancel context.CancelCauseFunc, p runningProgram, r transport.AttachRequest,
	in *transport.FrameReader, out *transport.FrameWriter,
) (int, error) {
	s.Node.Go(func() {
		for {
			f, err := in.Next()
			if err != nil {
				cancel(errors.Join(errLeft, err))
				return
			}
			if f.Channel != transport.ChannelSignal {
				continue
			}
			if err := s.passSignal(ctx, p, string(f.Body)); err != nil {
				_, _ = fmt.Fprintf(out.Channel(transport.ChannelStderr), "%v\n", err) // the sender may have left
			}
		}
	})
	var exit cluster.Exit
	var unseen error
	over := make(chan struct{})
	s.Node.Go(func() {
		defer close(over)
		exit, unseen = p.executor.Wait(ctx, p.id)
	})
	tail := r.Tail
	if tail <= 0 {
		tail = -1 // no line
	}
	stdout, stderr := out.Channel(transport.ChannelStdout), out.Channel(transport.ChannelStderr)
	options := logs.Options{Follow: true, Done: over, Tail: tail}
	err := logs.Read(ctx, s.Node.LogDir(p.task.ID.UUID, p.container), options,
		func(l logs.Line) error {
			s.countLost(l)
			if l.Lost > 0 {
				_, err := fmt.Fprintf(stderr, "[%d lines were lost]\n", l.Lost)
				return err
			}
			to := stdout
			if l.Stream == logs.Stderr {
				to = stderr
			}
			text := []byte(l.Text)
			if !l.Partial {
				text = append(text, '\n')
			}
			_, err := to.Write(text)
			return err
		})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	<-over
	switch {
	case unseen != nil:
		return 0, fmt.Errorf("the end of container %s was not seen: %w", p.container, unseen)
	case exit.Unknown:
		return 0, fmt.Errorf("the end of container %s was not seen", p.container)
	}
	return exit.Code, nil
}

// passSignal sends a signal to a program.
func (s *Server) passSignal(ctx context.Context, p runningProgram, name string) error {
	sig, ok := attachSignals[name]
	if !ok {
		return fmt.Errorf("the signal %q is not passed on: want one of %v", name,
			slices.Sorted(maps.Keys(attachSignals)))
	}
	s.Node.Logger.Info("a signal was sent to a container on request", "task", p.task.ID.Task,
		"container", p.container, "signal",
		name)
	if err := p.executor.Signal(ctx, p.id, sig); err != nil {
		return fmt.Errorf("signal %s: %w", name, err)
	}
	return nil
}

package stream

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/hinted"
)

// openTerminal connects this terminal to a command. With input it puts the terminal into raw mode until restore is
// called.
func openTerminal(ctx context.Context, sess *session.Session, o *client.ExecOptions) (restore func(), err error) {
	in, ok := sess.Stdin.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return nil, &hinted.Error{
			Err: errors.New("-t needs a terminal on standard input, but standard input is not a terminal"),
			Hint: "Leave out -t: scripts and pipes need no terminal, and -i alone sends standard input " +
				"to the command.",
		}
	}
	fd := int(in.Fd())
	size := func() (s client.Size) {
		columns, rows, err := term.GetSize(fd)
		if err == nil {
			s = client.Size{Rows: uint16(rows), Columns: uint16(columns)}
		}
		return s
	}
	resized := make(chan client.Size, 1)
	o.Terminal = &client.Terminal{Size: size(), Type: sess.Env("TERM"), Resized: resized}
	var before *term.State
	if o.Stdin != nil {
		if before, err = term.MakeRaw(fd); err != nil {
			return nil, err
		}
	}
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGWINCH, syscall.SIGCONT)
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			select {
			case sig := <-changes:
				if sig == syscall.SIGCONT && before != nil {
					_, _ = term.MakeRaw(fd) // after a stop the shell had reset the terminal
				}
			case <-done:
				return
			case <-ctx.Done():
				return
			}
			select {
			case <-resized: // only the newest size counts
			default:
			}
			resized <- size() // never blocks: there is no other sender
		}
	})
	return sync.OnceFunc(func() {
		signal.Stop(changes)
		close(done)
		watch.Wait()
		if before != nil {
			_ = term.Restore(fd, before) // an error has no remedy
		}
	}), nil
}

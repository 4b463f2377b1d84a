package process

import (
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/pty"
)

// execOnTerminal is Exec for a command with a terminal. The agent holds the controlling end, so the kernel hangs up on
// the command when the agent ends.
func (e *Executor) execOnTerminal(ctx context.Context, id executor.ID, cmd executor.Command) (int, error) {
	keyboard, terminal, err := pty.Open(pty.Size(cmd.Terminal.Size))
	if err != nil {
		return 0, fmt.Errorf("exec: %w", err)
	}
	dst := cmd.Stdout
	if dst == nil {
		dst = io.Discard
	}
	var output, others sync.WaitGroup
	output.Go(func() {
		// A writer that fails must not stop the command: the remaining output is discarded. The output ends when no
		// program has the terminal open.
		if _, err := io.Copy(dst, keyboard); err != nil {
			_, _ = io.Copy(io.Discard, keyboard)
		}
	})
	if cmd.Stdin != nil {
		go func() { _, _ = io.Copy(keyboard, cmd.Stdin) }()
	}
	ended := make(chan struct{})
	others.Go(func() {
		for {
			select {
			case s := <-cmd.Terminal.Resized:
				_ = pty.SetSize(keyboard, pty.Size(s)) // of a terminal that is there
			case <-ended:
				return
			}
		}
	})
	dir := e.dir(id)
	rep, err := dir.call(ctx, request{Op: opTerminal, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir}, terminal)
	_ = terminal.Close()
	waitAtMost(&output, drainLimit) // a child of the command may keep its terminal for longer
	close(ended)
	others.Wait()
	_ = keyboard.Close()
	output.Wait()
	return rep.Code, dir.notRunning(err)
}

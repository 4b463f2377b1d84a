package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/berthd/berth/internal/executor"
)

// Exec implements executor.Executor. A Stdin that is still being read when the command ends is read once more before
// Exec returns.
func (e *Executor) Exec(ctx context.Context, id executor.ID, cmd executor.Command) (int, error) {
	if len(cmd.Args) == 0 {
		return 0, errors.New("exec: no command")
	}
	if cmd.Terminal != nil {
		return e.execOnTerminal(ctx, id, cmd)
	}
	var ours, theirs [3]*os.File
	closeAll := func(files [3]*os.File) {
		for _, f := range files {
			if f != nil {
				_ = f.Close()
			}
		}
	}
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(ours)
			closeAll(theirs)
			return 0, fmt.Errorf("exec: %w", err)
		}
		ours[i], theirs[i] = r, w
		if i == 0 {
			ours[i], theirs[i] = w, r
		}
	}
	var output sync.WaitGroup
	for i, dst := range []io.Writer{1: cmd.Stdout, 2: cmd.Stderr} {
		if i == 0 {
			continue
		}
		if dst == nil {
			dst = io.Discard
		}
		output.Go(func() {
			// A writer that fails must not stop the command: the rest is thrown away.
			if _, err := io.Copy(dst, ours[i]); err != nil {
				_, _ = io.Copy(io.Discard, ours[i])
			}
		})
	}
	go func() {
		if cmd.Stdin != nil {
			_, _ = io.Copy(ours[0], cmd.Stdin)
		}
		_ = ours[0].Close()
	}()
	dir := e.dir(id)
	rep, err := dir.call(ctx, request{Op: opExec, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir}, theirs[:]...)
	closeAll(theirs)
	waitAtMost(&output, drainLimit) // a child of the command may keep its output for longer
	_ = ours[0].Close()
	_ = ours[1].Close()
	_ = ours[2].Close()
	output.Wait()
	return rep.Code, dir.notRunning(err)
}

// notRunning returns the state of a container whose supervisor does not answer, as an error.
func (d stateDir) notRunning(err error) error {
	if !errors.Is(err, errNoSupervisor) {
		return err
	}
	if _, gone := d.state(); gone != nil {
		return gone
	}
	return executor.ErrNotRunning
}

package task

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/machine"
	"github.com/berthd/berth/internal/executor"
)

// RunningContainers finds the running containers of one attempt. Its methods may be called on any goroutine.
type RunningContainers struct {
	view      func() *attempt.View
	executors *machine.Executors
}

// Running returns the executor and the id of a running container of the task: the named one, or the first
// essential one.
func (c RunningContainers) Running(name string) (executor.Executor, executor.ID, error) {
	v := c.view()
	_, id, err := v.Running(name)
	if err != nil {
		return nil, "", err
	}
	exec, err := c.executors.ByName(v.Record.Executor)
	return exec, id, err
}

// Signal sends a signal to a container, if it runs. The name lacks "SIG".
func (c RunningContainers) Signal(ctx context.Context, container, name string) error {
	exec, id, err := c.Running(container)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, signalTimeout)
		defer cancel()
		err = exec.Signal(ctx, id, unix.SignalNum("SIG"+name))
	}
	if errors.Is(err, executor.ErrNotRunning) || errors.Is(err, executor.ErrNotFound) {
		return nil // the next run gets the new values
	}
	return err
}

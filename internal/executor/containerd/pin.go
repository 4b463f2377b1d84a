package containerd

import (
	"context"
	"errors"
	"syscall"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berthd/berth/internal/executor"
)

// Pin implements executor.Pinner.
func (e *Executor) Pin(ctx context.Context, id executor.ID, cpus string) error {
	ctx = e.in(ctx)
	c, err := e.client.LoadContainer(ctx, nameOf(id))
	if err == nil {
		var t client.Task
		if t, err = c.Task(ctx, nil); err == nil {
			err = t.Update(ctx, client.WithResources(&specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: cpus}}))
		}
	}
	if err == nil || isA(err, errdefs.IsNotFound) {
		return nil
	}
	if t, taskErr := e.task(ctx, id); taskErr == nil && t == nil || errors.Is(err, syscall.ESRCH) {
		return nil // it ended meanwhile
	}
	return failed(ctx, "move to CPUs "+cpus, err)
}

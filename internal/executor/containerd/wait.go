package containerd

import (
	"context"
	"errors"
	"fmt"
	"time"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/pkg/protobuf"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/outlive"
	"github.com/berthd/berth/internal/pause"
)

// retryAfter is the pause of Wait after containerd did not answer.
const retryAfter = 100 * time.Millisecond

// Wait implements executor.Executor. It survives restarts of containerd and of the collector.
func (e *Executor) Wait(ctx context.Context, id executor.ID) (cluster.Exit, error) {
	ctx = e.in(ctx)
	defer e.collector.Watch(ctx)()
	for {
		if err := ctx.Err(); err != nil {
			return cluster.Exit{}, err
		}
		exit, done, err := e.waitOnce(ctx, id)
		if err != nil && !errors.Is(err, executor.ErrUnavailable) {
			return cluster.Exit{}, err
		}
		if done {
			return exit, err
		}
		if err != nil {
			if err := pause.For(ctx, retryAfter); err != nil {
				return cluster.Exit{}, err
			}
		}
	}
}

// waitOnce reads the state of the container and waits for the task, unless something prevents it.
func (e *Executor) waitOnce(ctx context.Context, id executor.ID) (exit cluster.Exit, done bool, err error) {
	r, err := e.load(ctx, id)
	if err != nil {
		return cluster.Exit{}, false, err
	}
	if exit, ended := r.exit(); ended {
		return exit, true, nil
	}
	t, err := e.task(ctx, id)
	if err != nil {
		return cluster.Exit{}, false, err
	}
	if t == nil || t.Status == tasktypes.Status_CREATED {
		exit, done, err = e.settleUnstarted(ctx, r)
		if done || err != nil {
			return exit, done, err
		}
	}
	resp, err := e.client.TaskService().Wait(ctx, &tasks.WaitRequest{ContainerID: nameOf(id)})
	if ctx.Err() != nil {
		return cluster.Exit{}, false, ctx.Err()
	}
	if err != nil {
		// containerd restarted, the shim died, or the task was deleted: check again.
		return cluster.Exit{}, false, fmt.Errorf("%w: %w", executor.ErrUnavailable, err)
	}
	at := time.Now()
	if resp.ExitedAt != nil && !protobuf.FromTimestamp(resp.ExitedAt).IsZero() {
		at = protobuf.FromTimestamp(resp.ExitedAt)
	}
	return e.settle(ctx, r, exitOf(int(resp.ExitStatus), at))
}

// settleUnstarted handles a task that is missing or does not run. If Start was called, its result is unknown: the task
// is ended, and the exit is unknown.
func (e *Executor) settleUnstarted(ctx context.Context, r record) (exit cluster.Exit, done bool, err error) {
	unlock, err := e.locks.Lock(ctx, r.id) // no Start is under way
	if err != nil {
		return cluster.Exit{}, false, err
	}
	defer unlock()
	t, err := e.task(ctx, r.id)
	if err != nil || t != nil && t.Status != tasktypes.Status_CREATED {
		return cluster.Exit{}, false, err
	}
	_, started := r.intent()
	switch {
	case started:
		if exit, ended := r.exit(); ended {
			return exit, true, nil
		}
		if _, err := e.load(ctx, r.id); err != nil {
			return cluster.Exit{}, false, err
		}
		if err := e.kill(ctx, r.id); err != nil {
			return cluster.Exit{}, false, err
		}
		e.orphans.kill(ctx, r.id, t != nil)
		exit = cluster.Exit{Code: -1, Unknown: true, At: time.Now()}
		err = e.record(r, exit)
		return exit, err == nil, err
	case t == nil:
		if _, err := e.load(ctx, r.id); err != nil {
			return cluster.Exit{}, false, err
		}
		return cluster.Exit{}, true, fmt.Errorf("%w: the task is gone before its start", executor.ErrUnavailable)
	}
	return cluster.Exit{}, false, nil
}

// record makes an exit durable. On a full disk it must be tried again: until then the task keeps the status.
func (e *Executor) record(r record, exit cluster.Exit) error {
	if err := outlive.Write(r.path(exitFile), exit); err != nil {
		return fmt.Errorf("%w: %w", executor.ErrUnavailable, err)
	}
	return nil
}

// settle makes an exit durable, then deletes the task, then completes the log.
func (e *Executor) settle(ctx context.Context, r record, exit cluster.Exit) (cluster.Exit, bool, error) {
	unlock, err := e.locks.Lock(ctx, r.id)
	if err != nil {
		return cluster.Exit{}, false, err
	}
	defer unlock()
	if got, ended := r.exit(); ended {
		return got, true, nil
	}
	if _, err := e.load(ctx, r.id); err != nil {
		return cluster.Exit{}, false, err
	}
	if _, started := r.intent(); !started {
		return cluster.Exit{}, true, fmt.Errorf("%w: the task died before its start", executor.ErrUnavailable)
	}
	exit.OOM = exit.Code != 0 && e.cgroups.oomKills(r.id) > 0
	if err := e.record(r, exit); err != nil {
		return cluster.Exit{}, false, err
	}
	err = e.kill(ctx, r.id)
	if err == nil {
		e.mu.Lock()
		e.cleaned[r.id] = true
		e.mu.Unlock()
		err = e.collector.Finish(ctx, r.id)
	}
	if err != nil { // the exit is known all the same; Remove tries again
		e.cfg.Logger.Warn("clean up an ended container", "container", r.id, "error", err)
	}
	return exit, true, nil
}

// exitOf translates containerd's status, in which a signal is 128 + its number.
func exitOf(status int, at time.Time) cluster.Exit {
	exit := cluster.Exit{Code: status, At: at}
	if status > 128 && status <= 128+64 {
		exit.Signal = status - 128
	}
	return exit
}

package task

import (
	"context"
	"errors"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/machine"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// exitWatch waits for the ends of the running containers of one attempt, on a goroutine for each. The attempt's
// goroutine calls its methods.
type exitWatch struct {
	node      *node.Node
	executors *machine.Executors
	id        attempt.ID
	events    *inbox
	running   map[executor.ID]func() // stops the watch of a run
}

// update watches each running container of the record that is not watched yet.
func (w *exitWatch) update(ctx context.Context, rec *attempt.Record) {
	for i := range rec.Containers {
		c := &rec.Containers[i]
		_, watched := w.running[c.ID]
		if c.Progress != attempt.Running || watched {
			continue
		}
		id, name := c.ID, rec.Executor
		ctx, cancel := context.WithCancel(ctx)
		w.running[id] = cancel
		w.node.Go(func() { w.await(ctx, name, id) })
	}
}

// await waits for the end of a run, across failures of the executor.
func (w *exitWatch) await(ctx context.Context, name string, id executor.ID) {
	p := w.node.NewBackoff(node.MinRetryBackoff, node.FastProbeInterval)
	for {
		exit, err := w.exit(ctx, name, id)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			w.events.put(func(r *attempt.Record) {
				delete(w.running, id)
				r.HasExited(id, exit, w.node.Now())
			})
			return
		}
		w.node.Logger.Warn("waiting for the end of a container failed", "task", w.id.Task, "attempt", w.id.Attempt,
			"container", id, "error", err)
		if p.Wait(ctx) != nil {
			return
		}
	}
}

// exit waits for the end of a run. The end of an unknown run is unknown.
func (w *exitWatch) exit(ctx context.Context, name string, id executor.ID) (cluster.Exit, error) {
	e, err := w.executors.ByName(name)
	if err != nil {
		return cluster.Exit{}, err
	}
	exit, err := e.Wait(ctx, id)
	if errors.Is(err, executor.ErrNotFound) {
		return cluster.Exit{Code: -1, At: time.Now(), Unknown: true}, nil
	}
	return exit, err
}

// stop stops all watches.
func (w *exitWatch) stop() {
	for _, end := range w.running {
		end()
	}
}

package agent

import (
	"context"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/machine"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/agent/task"
	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// listTimeout limits one listing of an executor's containers.
const listTimeout = 30 * time.Second

// resumeWait is how long the first registration waits for the executors to list their containers.
const resumeWait = 5 * time.Second

// recovery continues the attempts of an earlier run of the agent.
type recovery struct {
	node      *node.Node
	parts     *task.Parts
	facts     func() cluster.Facts
	executors *machine.Executors
	attempts  *attempts
	orphans   *orphans
}

// run continues the attempts that an earlier run of the agent recorded. Attempts with a program that may still run
// wait until their executor lists its containers.
func (r *recovery) run(ctx context.Context, records []*attempt.Record) {
	boot := r.facts().BootID
	waiting := map[string][]*task.Task{}
	known := map[executor.ID]bool{}
	for _, rec := range records {
		if r.node.Without.Off(clause.Intent) {
			attempt.ForgetIntent(rec)
		}
		t := task.New(r.parts, rec)
		r.attempts.add(t)
		for i := range rec.Containers {
			known[rec.Containers[i].ID] = true
		}
		if rec.MayRun() && rec.Boot == boot {
			t.Publish()
			waiting[rec.Executor] = append(waiting[rec.Executor], t)
			continue
		}
		t.Recover(nil, boot)
		r.node.Go(func() { t.Run(ctx) })
	}
	allRecovered := make(chan struct{})
	left := len(waiting)
	recovered := make(chan struct{}, left)
	for name, tasks := range waiting {
		r.node.Go(func() {
			r.recoverTasks(ctx, name, tasks)
			recovered <- struct{}{}
		})
	}
	r.node.Go(func() {
		defer close(allRecovered)
		for range left {
			<-recovered // recoverTasks ends with ctx
		}
	})
	r.orphans.sweep(ctx, known)
	r.node.Go(func() { r.orphans.watch(ctx, known) })
	timer := time.NewTimer(resumeWait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-allRecovered:
	case <-timer.C:
		r.node.Logger.Warn("an executor does not list its containers; its tasks are reported as they were")
	}
}

// recoverTasks lists the containers of an executor and continues its tasks from there.
func (r *recovery) recoverTasks(ctx context.Context, name string, tasks []*task.Task) {
	held, ok := r.list(ctx, name)
	if !ok {
		return
	}
	boot := r.facts().BootID
	for _, t := range tasks {
		t.Recover(held, boot)
		r.node.Go(func() { t.Run(ctx) })
	}
}

// list returns the containers of an executor; ok is false if ctx ended first.
func (r *recovery) list(ctx context.Context, name string) (held map[executor.ID]executor.Status, ok bool) {
	p := r.node.NewBackoff(node.MinRetryBackoff, node.FastProbeInterval)
	for {
		exec, err := r.executors.ByName(name)
		var all []executor.Status
		if err == nil {
			ask, cancel := context.WithTimeout(ctx, listTimeout)
			all, err = exec.List(ask)
			cancel()
		}
		if err == nil {
			held = make(map[executor.ID]executor.Status, len(all))
			for i := range all {
				held[all[i].ID] = all[i]
			}
			return held, true
		}
		if ctx.Err() == nil {
			r.node.Logger.Warn("an executor does not list its containers", "executor", name, "error", err)
		}
		if p.Wait(ctx) != nil {
			return nil, false
		}
	}
}

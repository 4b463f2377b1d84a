package agent

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// resumeWait is how long the first registration waits for the executors to tell what they hold.
const resumeWait = 5 * time.Second

// resume takes up the attempts that an earlier life of the agent wrote. Those of which a program may run wait
// until their executor tells what it holds.
func (a *Agent) resume(ctx context.Context, records []*attempt.Record) {
	boot := a.machine.facts().BootID
	waiting := map[string][]*task{}
	known := map[executor.ID]bool{}
	for _, rec := range records {
		if a.Without.Off(clause.Intent) {
			rec.ForgetIntent()
		}
		t := a.newTask(rec)
		a.add(t)
		for i := range rec.Containers {
			known[rec.Containers[i].ID] = true
		}
		if rec.MayRun() && rec.Boot == boot {
			t.publish()
			waiting[rec.Executor] = append(waiting[rec.Executor], t)
			continue
		}
		rec.Recover(nil, boot, a.now())
		t.publish()
		a.work.Go(func() { t.run(ctx) })
	}
	heard := make(chan struct{})
	left := len(waiting)
	told := make(chan struct{}, left)
	for name, tasks := range waiting {
		a.work.Go(func() {
			a.recover(ctx, name, tasks)
			told <- struct{}{}
		})
	}
	a.work.Go(func() {
		defer close(heard)
		for range left {
			<-told // recover ends with ctx
		}
	})
	a.sweep(ctx, known)
	a.work.Go(func() { a.watchStrays(ctx, known) })
	timer := time.NewTimer(resumeWait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-heard:
	case <-timer.C:
		a.Logger.Warn("an executor does not tell what it holds; its tasks are reported as they were")
	}
}

// recover asks an executor what it holds and lets its tasks go on from there.
func (a *Agent) recover(ctx context.Context, name string, tasks []*task) {
	held, ok := a.list(ctx, name)
	if !ok {
		return
	}
	boot := a.machine.facts().BootID
	for _, t := range tasks {
		t.rec.Recover(held, boot, a.now()) // its goroutine has not begun
		t.publish()
		a.work.Go(func() { t.run(ctx) })
	}
}

// list returns what an executor holds; ok is false if ctx ended first.
func (a *Agent) list(ctx context.Context, name string) (held map[executor.ID]executor.Status, ok bool) {
	p := a.pause(retryFirst, lookSoon)
	for {
		exec, err := a.held(name)
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
			a.Logger.Warn("an executor does not tell what it holds", "executor", name, "error", err)
		}
		if !p.wait(ctx) {
			return nil, false
		}
	}
}

// orphan is a container that an executor holds of an attempt that the agent does not know.
type orphan struct {
	executor string
	status   executor.Status
}

// found is what the executors hold of attempts that the agent does not know.
type found struct {
	mu      sync.Mutex
	orphans map[string][]orphan // by UUID
	swept   map[string]bool     // the executors that told what they hold
	news    chan struct{}       // capacity 1: something was found that no registration told of
}

func newFound() *found {
	return &found{orphans: map[string][]orphan{}, swept: map[string]bool{}, news: make(chan struct{}, 1)}
}

// has reports whether anything of an attempt was found.
func (f *found) has(uuid string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.orphans[uuid]) > 0
}

// strays are attempts of which a program runs and the record was lost. They are told of, or they would count as lost,
// run on unknown to anybody, and their tasks a second time elsewhere; what the server then sends of them is adopted.
func (a *Agent) strays() []cluster.Observed {
	select {
	case <-a.found.news: // this tells of them
	default:
	}
	a.found.mu.Lock()
	orphans := maps.Clone(a.found.orphans)
	a.found.mu.Unlock()
	var out []cluster.Observed
	for _, uuid := range sortedKeys(orphans) {
		for _, o := range orphans[uuid] {
			number, err := strconv.Atoi(o.status.Labels[labelAttempt])
			if err != nil || o.status.State != executor.StateRunning || a.task("", uuid) != nil {
				continue
			}
			out = append(out, cluster.Observed{
				Task: cluster.TaskID(o.status.Labels[labelTask]), Attempt: number, UUID: uuid, Node: a.Name,
				State: cluster.StateRunning, Health: cluster.HealthUnknown, Started: o.status.Process.Started,
				Message: "the agent's record of it was lost; it runs on",
			})
			break
		}
	}
	return out
}

// adopt takes up what the executors hold of an attempt whose record was lost.
func (a *Agent) adopt(t *task) {
	a.found.mu.Lock()
	orphans := a.found.orphans[t.uuid]
	delete(a.found.orphans, t.uuid)
	a.found.mu.Unlock()
	if len(orphans) == 0 || t.def == nil {
		return
	}
	held := make([]executor.Status, len(orphans))
	for i := range orphans {
		held[i] = orphans[i].status
	}
	if t.rec.Adopt(orphans[0].executor, held, t.def, a.now()) {
		a.Logger.Info("a task whose record was lost is taken up", "task", t.id, "attempt", t.attempt)
	}
}

// sweep finds out what the executors hold beside the attempts that the agent knew when it began. What was
// never started is removed. What runs is left alone: a lost state is no reason to stop a
// task, and its attempt is taken up when the server sends it again (P1.7).
//
// An agent that never had a session may have lost its state, and what its first full report leaves out counts as gone.
// So it asks until all executors that work have answered; any other waits for them a while only, as it has records of
// what runs.
func (a *Agent) sweep(ctx context.Context, known map[executor.ID]bool) {
	if a.marked().Session != 0 {
		limited, cancel := context.WithTimeout(ctx, resumeWait)
		defer cancel()
		ctx = limited
	}
	for p := a.pause(retryFirst, lookSoon); !a.sweepAll(ctx, known) && p.wait(ctx); {
	}
}

// watchStrays asks the executors that did not tell, or did not work yet, what they hold, until ctx ends. What is found
// then has the node register again, for only a full report tells of it.
func (a *Agent) watchStrays(ctx context.Context, known map[executor.ID]bool) {
	tick := time.NewTicker(lookSoon)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.sweepAll(ctx, known)
		}
	}
}

// sweepAll asks those executors that work and have not told yet, and reports whether all have.
func (a *Agent) sweepAll(ctx context.Context, known map[executor.ID]bool) bool {
	a.machine.mu.Lock()
	holding := slices.Concat(a.machine.working, a.machine.retired)
	a.machine.mu.Unlock()
	all := true
	for _, e := range holding {
		a.found.mu.Lock()
		swept := a.found.swept[e.name]
		a.found.mu.Unlock()
		if swept {
			continue
		}
		ask, cancel := context.WithTimeout(ctx, resumeWait)
		err := a.sweepOne(ask, e, known)
		cancel()
		if err != nil {
			a.Logger.Warn("an executor does not tell what it holds", "executor", e.name, "error", err)
			all = false
		}
	}
	return all
}

// sweepOne deals with what one executor holds.
func (a *Agent) sweepOne(ctx context.Context, e named, known map[executor.ID]bool) error {
	held, err := e.List(ctx)
	if err != nil {
		return err
	}
	for _, s := range held {
		uuid := s.Labels[labelUUID]
		if node := s.Labels[labelNode]; known[s.ID] || node != "" && node != a.Name || a.task("", uuid) != nil {
			continue
		}
		if s.State == executor.StatePrepared {
			if err := e.Remove(ctx, s.ID); err != nil {
				a.Logger.Warn("a container that was never started cannot be removed", "container", s.ID, "error", err)
			}
			continue
		}
		a.Logger.Warn("a container was found whose task the agent has no record of; it runs on until the servers tell",
			"container", s.ID, "task", s.Labels[labelTask], "state", s.State)
		a.found.mu.Lock()
		a.found.orphans[uuid] = append(a.found.orphans[uuid], orphan{e.name, s})
		a.found.mu.Unlock()
		select {
		case a.found.news <- struct{}{}:
		default:
		}
	}
	a.found.mu.Lock()
	defer a.found.mu.Unlock()
	a.found.swept[e.name] = true
	return nil
}

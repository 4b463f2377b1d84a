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

// resumeWait is how long the first registration waits for the executors to list their containers.
const resumeWait = 5 * time.Second

// resume continues the attempts that an earlier run of the agent recorded. Attempts with a program that may still run
// wait until their executor lists its containers.
func (a *Agent) resume(ctx context.Context, records []*attempt.Record) {
	boot := a.machine.facts().BootID
	waiting := map[string][]*task{}
	known := map[executor.ID]bool{}
	for _, rec := range records {
		if a.Without.Off(clause.Intent) {
			attempt.ForgetIntent(rec)
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
	allRecovered := make(chan struct{})
	left := len(waiting)
	recovered := make(chan struct{}, left)
	for name, tasks := range waiting {
		a.work.Go(func() {
			a.recoverTasks(ctx, name, tasks)
			recovered <- struct{}{}
		})
	}
	a.work.Go(func() {
		defer close(allRecovered)
		for range left {
			<-recovered // recoverTasks ends with ctx
		}
	})
	a.sweep(ctx, known)
	a.work.Go(func() { a.watchOrphans(ctx, known) })
	timer := time.NewTimer(resumeWait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-allRecovered:
	case <-timer.C:
		a.Logger.Warn("an executor does not list its containers; its tasks are reported as they were")
	}
}

// recoverTasks lists the containers of an executor and continues its tasks from there.
func (a *Agent) recoverTasks(ctx context.Context, name string, tasks []*task) {
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

// list returns the containers of an executor; ok is false if ctx ended first.
func (a *Agent) list(ctx context.Context, name string) (held map[executor.ID]executor.Status, ok bool) {
	p := a.newBackoff(minRetryBackoff, fastProbeInterval)
	for {
		exec, err := a.executorByName(name)
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
			a.Logger.Warn("an executor does not list its containers", "executor", name, "error", err)
		}
		if !p.wait(ctx) {
			return nil, false
		}
	}
}

// orphan is a container of an attempt that the agent does not know.
type orphan struct {
	executor string
	status   executor.Status
}

// orphans holds the containers of attempts that the agent does not know.
type orphans struct {
	mu         sync.Mutex
	byUUID     map[string][]orphan // by UUID
	swept      map[string]bool     // the executors that have listed their containers
	unreported chan struct{}       // capacity 1: an orphan was found that no registration has reported
}

func newOrphans() *orphans {
	return &orphans{byUUID: map[string][]orphan{}, swept: map[string]bool{}, unreported: make(chan struct{}, 1)}
}

// has reports whether an attempt has an orphan.
func (f *orphans) has(uuid string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.byUUID[uuid]) > 0
}

// orphanReports returns the attempts with a running program and a lost record. Without these reports they would count
// as lost and run on unseen, while their tasks ran a second time elsewhere. The agent adopts them when the server sends
// their assignments.
func (a *Agent) orphanReports() []cluster.Observed {
	select {
	case <-a.orphans.unreported: // this registration reports them
	default:
	}
	a.orphans.mu.Lock()
	orphans := maps.Clone(a.orphans.byUUID)
	a.orphans.mu.Unlock()
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

// adopt takes over the containers of an attempt whose record was lost.
func (a *Agent) adopt(t *task) {
	a.orphans.mu.Lock()
	orphans := a.orphans.byUUID[t.uuid]
	delete(a.orphans.byUUID, t.uuid)
	a.orphans.mu.Unlock()
	if len(orphans) == 0 || t.def == nil {
		return
	}
	held := make([]executor.Status, len(orphans))
	for i := range orphans {
		held[i] = orphans[i].status
	}
	if attempt.Adopt(t.rec, orphans[0].executor, held, t.def, a.now()) {
		a.Logger.Info("a task whose record was lost is taken up", "task", t.id, "attempt", t.attempt)
	}
}

// sweep finds containers of attempts that the agent did not know when it began. It removes containers that were never
// started. Running ones continue: a lost state is no reason to stop a task. Their attempts are adopted when the server
// sends them again (P1.7).
//
// An agent that never had a session may have lost its state, and attempts missing from its first full report count as
// gone. Such an agent therefore asks until all working executors have answered. Any other agent has records of its
// running tasks and waits for a limited time.
func (a *Agent) sweep(ctx context.Context, known map[executor.ID]bool) {
	if a.currentMark().Session != 0 {
		limited, cancel := context.WithTimeout(ctx, resumeWait)
		defer cancel()
		ctx = limited
	}
	for p := a.newBackoff(minRetryBackoff, fastProbeInterval); !a.sweepAll(ctx, known) && p.wait(ctx); {
	}
}

// watchOrphans asks the remaining executors for their containers until ctx ends. A container that is found then makes
// the node register again, because only a full report carries it.
func (a *Agent) watchOrphans(ctx context.Context, known map[executor.ID]bool) {
	tick := time.NewTicker(fastProbeInterval)
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

// sweepAll asks the working executors that have not answered yet, and reports whether all have answered.
func (a *Agent) sweepAll(ctx context.Context, known map[executor.ID]bool) bool {
	a.machine.mu.Lock()
	holding := slices.Concat(a.machine.working, a.machine.retired)
	a.machine.mu.Unlock()
	all := true
	for _, e := range holding {
		a.orphans.mu.Lock()
		swept := a.orphans.swept[e.name]
		a.orphans.mu.Unlock()
		if swept {
			continue
		}
		ask, cancel := context.WithTimeout(ctx, resumeWait)
		err := a.sweepOne(ask, e, known)
		cancel()
		if err != nil {
			a.Logger.Warn("an executor does not list its containers", "executor", e.name, "error", err)
			all = false
		}
	}
	return all
}

// sweepOne handles the containers of one executor.
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
		a.Logger.Warn("a container without a record was found; it keeps running until a server sends its assignment",
			"container", s.ID, "task", s.Labels[labelTask], "state", s.State)
		a.orphans.mu.Lock()
		a.orphans.byUUID[uuid] = append(a.orphans.byUUID[uuid], orphan{e.name, s})
		a.orphans.mu.Unlock()
		select {
		case a.orphans.unreported <- struct{}{}:
		default:
		}
	}
	a.orphans.mu.Lock()
	defer a.orphans.mu.Unlock()
	a.orphans.swept[e.name] = true
	return nil
}

package agent

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/transport"
)

// task moves one attempt: a goroutine that takes in what happened, asks the record for the next step, and
// has one step done at a time.
type task struct {
	agent      *Agent
	id         cluster.TaskID
	uuid       string
	attempt    int
	definition cluster.Ref
	began      time.Duration // when this life of the agent took it up (Boot)
	cores      []int         // CPUs that it has to itself
	// acted is the newest assignment that the record took.
	acted atomic.Pointer[transport.Known]
	// view is the newest state for those who are not the goroutine.
	view atomic.Pointer[view]
	// ended is closed once no program of the attempt will run any more.
	ended chan struct{}

	mu    sync.Mutex
	inbox []func(*attempt.Record) // what happened, oldest first
	over  bool                    // the goroutine takes nothing in any more: the attempt is forgotten
	wake  chan struct{}           // capacity 1
	def   *cluster.TaskDefinition

	// secrets are those in memory; it is used by all goroutines.
	secrets handout
	// services are what it knows of those that it uses; it is used by all goroutines.
	services told

	// The rest is the goroutine's alone.
	rec      *attempt.Record
	busy     bool               // a step is being done
	doing    attempt.Do         // which, or which failed last
	cancel   context.CancelFunc // ends the step
	retryAt  time.Time          // when a step that failed is tried again
	retry    *pause
	problem  string                 // why it failed
	watched  map[executor.ID]func() // ends the watch of a run
	checking func()                 // ends the checks, or nil
	checked  watchedChecks          // what they look at
	gone     bool                   // forget it once nothing is left
	ran      bool                   // in this life of the agent
}

// view is a copy of what others may know of an attempt.
type view struct {
	rec attempt.Record // with containers of its own
	def *cluster.TaskDefinition
}

func (a *Agent) newTask(rec *attempt.Record) *task {
	d := &rec.Desired
	t := &task{
		agent: a, id: d.Task, uuid: d.UUID, attempt: d.Attempt, definition: d.Definition, began: a.Boot(),
		cores: coresOf(d.Devices),
		ended: make(chan struct{}), wake: make(chan struct{}, 1),
		rec: rec, watched: map[executor.ID]func(){}, retry: a.pause(retryFirst, lookSoon),
		ran: rec.Phase == attempt.PhaseRunning,
	}
	t.acts(&transport.Assignment{Desired: rec.Desired, Revision: rec.Revision})
	return t
}

// begin makes an attempt of an assignment.
func (a *Agent) begin(ctx context.Context, as *transport.Assignment) {
	t := a.newTask(attempt.New(as.Desired, as.Revision, a.machine.facts().BootID))
	a.add(t)
	a.adopt(t)
	a.reports.hold(t.uuid)
	durable := a.store.CommitAttempt(t.rec)
	a.work.Go(func() {
		select {
		case err := <-durable:
			if err != nil { // no reason to keep quiet
				a.Logger.Debug("an attempt is told of before its record is durable", "task", t.id, "attempt", t.attempt,
					"error", err)
			}
		case <-ctx.Done():
		}
		a.reports.release(t.uuid)
	})
	a.work.Go(func() { t.run(ctx) })
}

// post hands the goroutine something that happened, and returns false if it is over: nobody takes it in then. It never
// blocks.
func (t *task) post(happened func(*attempt.Record)) bool {
	t.mu.Lock()
	over := t.over
	if !over {
		t.inbox = append(t.inbox, happened)
	}
	t.mu.Unlock()
	t.again()
	return !over
}

// leave has post take no more, unless something waits to be taken in.
func (t *task) leave() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = len(t.inbox) == 0
	return t.over
}

// again has the goroutine look once more.
func (t *task) again() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// assigned hands the attempt a newer assignment. One that was forgotten is known again by it: its end is told. It
// returns false where nothing of the attempt is left that could take it.
func (t *task) assigned(as *transport.Assignment) bool {
	return t.post(func(r *attempt.Record) {
		if r.Update(&as.Desired, as.Revision) {
			t.acts(as)
			t.gone = false
		}
	})
}

// acts notes which assignment the record took.
func (t *task) acts(as *transport.Assignment) {
	known := as.Known()
	t.acted.Store(&known)
}

func (t *task) defined(d *cluster.TaskDefinition) {
	t.mu.Lock()
	t.def = d
	t.mu.Unlock()
	t.again()
}

func (t *task) hasDefinition() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.def != nil
}

func (t *task) barrierPassed(asked time.Duration) {
	t.post(func(r *attempt.Record) { r.BarrierPassed(asked) })
}

func (t *task) inSession(s attempt.Session) {
	t.post(func(r *attempt.Record) { r.InSession(s) })
}

func (t *task) askSent(ask string) {
	now := t.agent.now()
	t.post(func(r *attempt.Record) { r.AskSent(ask, now) })
}

func (t *task) barrierRefused(message string) {
	t.post(func(r *attempt.Record) { r.BarrierRefused(message) })
}

// forget drops the attempt once nothing of it is left on the node. What runs is left alone: that the
// store does not know it is no reason to stop it (P1.7, P6.6).
func (t *task) forget() {
	t.post(func(r *attempt.Record) {
		if r.MayRun() && !t.agent.Without.Off(clause.Absence) {
			t.agent.Logger.Warn("the server forgot a task that runs here; it goes on", "task", t.id, "attempt",
				t.attempt)
			return
		}
		t.gone = true
		r.Forgotten()
	})
}

// run is the goroutine. It ends with ctx, or when the attempt is forgotten.
func (t *task) run(ctx context.Context) {
	defer t.unwatch()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		t.drain()
		wait, over := t.advance(ctx)
		if over {
			return
		}
		var due <-chan time.Time
		if wait >= 0 {
			timer.Reset(wait)
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		case <-due:
		}
		if ctx.Err() != nil {
			return // what a step did that was cut short is for the next life to find out
		}
	}
}

// drain takes in what happened.
func (t *task) drain() {
	t.mu.Lock()
	happened := t.inbox
	t.inbox = nil
	t.mu.Unlock()
	for _, h := range happened {
		h(t.rec)
	}
}

// advance does the next step, unless one is being done. It returns how long to wait if nothing happens, negative
// for ever; over says that the attempt is forgotten.
func (t *task) advance(ctx context.Context) (wait time.Duration, over bool) {
	if t.busy {
		if t.rec.Attend(t.agent.now()) && t.doing == attempt.Prepare {
			t.cancel()
		}
		t.publish()
		return -1, false
	}
	def := t.currentDefinition()
	now := t.agent.now()
	t.rec.Hearing = t.agent.heard()
	step := t.rec.Next(def, now)
	t.publish()
	t.watch(ctx)
	t.check(ctx)
	t.followServices(ctx, def)
	if t.rec.Doubts(def, now) {
		t.agent.reports.press() // its answer tells
	}
	if t.rec.Phase == attempt.PhaseGone && t.gone {
		return 0, t.agent.remove(t)
	}
	if step.Do == attempt.Wait {
		t.agent.store.QueueAttempt(t.rec)
		if step.At == 0 {
			return -1, false
		}
		return max(step.At-now.Boot, 0), false
	}
	if step.Do == t.doing && !t.retryAt.IsZero() {
		if left := time.Until(t.retryAt); left > 0 {
			t.agent.store.QueueAttempt(t.rec)
			return left, false
		}
	}
	if step.Do == attempt.Prepare {
		t.agent.store.QueueAttempt(t.rec) // so that a later life of the agent knows what to remove
	}
	t.do(ctx, step, def)
	return -1, false
}

func (t *task) currentDefinition() *cluster.TaskDefinition {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.def
}

// publish tells others how the attempt stands: the reports, streams, and followers of its log.
func (t *task) publish() {
	def := t.currentDefinition()
	v := &view{rec: *t.rec, def: def}
	v.rec.Containers = append([]attempt.Container(nil), t.rec.Containers...)
	t.view.Store(v)
	o := t.rec.Observed(def)
	if t.problem != "" && !o.State.Terminal() {
		o.Message = t.problem
	}
	if trouble := t.services.trouble.Load(); trouble != nil && o.Message == "" && o.State == cluster.StateRunning {
		o.Message = *trouble
	}
	ask := 0
	if t.rec.AtBarrier() {
		ask = t.rec.Barrier.Ask + 1
	}
	t.agent.reports.put(t, o, ask)
	t.arrived(o.State)
	if t.rec.Terminal() || t.rec.Phase == attempt.PhaseClosing {
		select {
		case <-t.ended:
		default:
			close(t.ended)
			if len(t.cores) > 0 {
				t.agent.unpin()
			}
		}
	}
}

// watch waits for the end of every run that goes on.
func (t *task) watch(ctx context.Context) {
	for i := range t.rec.Containers {
		c := &t.rec.Containers[i]
		_, watched := t.watched[c.ID]
		if c.Progress != attempt.Running || watched {
			continue
		}
		id, name := c.ID, t.rec.Executor
		ctx, cancel := context.WithCancel(ctx)
		t.watched[id] = cancel
		t.agent.work.Go(func() { t.await(ctx, name, id) })
	}
}

// await waits for the end of a run, however often the executor goes away meanwhile.
func (t *task) await(ctx context.Context, name string, id executor.ID) {
	p := t.agent.pause(retryFirst, lookSoon)
	for {
		exit, err := t.agent.wait(ctx, name, id)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			t.post(func(r *attempt.Record) {
				delete(t.watched, id)
				r.HasExited(id, exit, t.agent.now())
			})
			return
		}
		t.agent.Logger.Warn("the end of a container cannot be waited for", "task", t.id, "attempt", t.attempt,
			"container", id, "error", err)
		if !p.wait(ctx) {
			return
		}
	}
}

// unwatch ends what the goroutine began.
func (t *task) unwatch() {
	for _, end := range t.watched {
		end()
	}
	if t.checking != nil {
		t.checking()
	}
	if t.cancel != nil {
		t.cancel()
	}
}

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

// task drives one attempt. Its goroutine takes events in, asks the record for the next step, and performs one step at a
// time.
type task struct {
	agent      *Agent
	id         cluster.TaskID
	uuid       string
	attempt    int
	definition cluster.Ref
	began      time.Duration // when this run of the agent took the attempt up (Boot)
	cores      []int         // CPUs that are exclusively the attempt's
	// acted is the newest assignment that the record has accepted.
	acted atomic.Pointer[transport.Known]
	// view is the newest state for readers on other goroutines.
	view atomic.Pointer[view]
	// ended is closed once no program of the attempt will run any more.
	ended chan struct{}

	mu    sync.Mutex
	inbox []func(*attempt.Record) // events, oldest first
	over  bool                    // the goroutine takes no more events: the attempt is forgotten
	wake  chan struct{}           // capacity 1
	def   *cluster.TaskDefinition

	// secrets are the secrets in memory; all goroutines use it.
	secrets secretState
	// services is the state of the services that the task uses; all goroutines use it.
	services serviceState

	// The remaining fields belong to the task's goroutine.
	rec         *attempt.Record
	busy        bool               // a step is running
	currentStep attempt.Do         // the current step, or the last failed one
	cancel      context.CancelFunc // cancels the step
	retryAt     time.Time          // when a failed step is retried
	retry       *backoff
	problem     string                 // why the step failed
	watched     map[executor.ID]func() // stops the watch of a run
	checking    func()                 // stops the checks, or nil
	checked     watchedChecks          // the checks that run
	forgettable bool                   // forget the attempt once nothing is left of it
	ran         bool                   // the task has run in this run of the agent
}

// view is a copy of an attempt's state for readers on other goroutines.
type view struct {
	rec attempt.Record // with its own slice of containers
	def *cluster.TaskDefinition
}

func (a *Agent) newTask(rec *attempt.Record) *task {
	d := &rec.Desired
	t := &task{
		agent: a, id: d.Task, uuid: d.UUID, attempt: d.Attempt, definition: d.Definition, began: a.Boot(),
		cores: coresOf(d.Devices),
		ended: make(chan struct{}), wake: make(chan struct{}, 1),
		rec: rec, watched: map[executor.ID]func(){}, retry: a.newBackoff(minRetryBackoff, fastProbeInterval),
		ran: rec.Phase == attempt.PhaseRunning,
	}
	t.noteAssignment(&transport.Assignment{Desired: rec.Desired, Revision: rec.Revision})
	return t
}

// beginAttempt creates an attempt from an assignment.
func (a *Agent) beginAttempt(ctx context.Context, as *transport.Assignment) {
	t := a.newTask(attempt.New(as.Desired, as.Revision, a.machine.facts().BootID))
	a.add(t)
	a.adopt(t)
	a.reports.hold(t.uuid)
	durable := a.store.CommitAttempt(t.rec)
	a.work.Go(func() {
		select {
		case err := <-durable:
			if err != nil { // an error is no reason to withhold the report
				a.Logger.Debug("an attempt is reported before its record is durable",
					"task", t.id, "attempt", t.attempt,
					"error", err)
			}
		case <-ctx.Done():
		}
		a.reports.release(t.uuid)
	})
	a.work.Go(func() { t.run(ctx) })
}

// post passes an event to the goroutine. It returns false if the attempt is over; then nobody takes the event. It never
// blocks.
func (t *task) post(happened func(*attempt.Record)) bool {
	t.mu.Lock()
	over := t.over
	if !over {
		t.inbox = append(t.inbox, happened)
	}
	t.mu.Unlock()
	t.wakeUp()
	return !over
}

// closeInbox makes post reject events, unless an event already waits.
func (t *task) closeInbox() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = len(t.inbox) == 0
	return t.over
}

// wakeUp makes the goroutine run once more.
func (t *task) wakeUp() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// assigned passes a newer assignment to the attempt. It revives an attempt that was to be forgotten, whose end is then
// reported. It returns false if nothing is left of the attempt to take the assignment.
func (t *task) assigned(as *transport.Assignment) bool {
	return t.post(func(r *attempt.Record) {
		if r.Update(&as.Desired, as.Revision) {
			t.noteAssignment(as)
			t.forgettable = false
		}
	})
}

// noteAssignment records which assignment the record has accepted.
func (t *task) noteAssignment(as *transport.Assignment) {
	known := as.Known()
	t.acted.Store(&known)
}

func (t *task) defined(d *cluster.TaskDefinition) {
	t.mu.Lock()
	t.def = d
	t.mu.Unlock()
	t.wakeUp()
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
	t.post(func(r *attempt.Record) { r.Session = s })
}

func (t *task) askSent(ask string) {
	now := t.agent.now()
	t.post(func(r *attempt.Record) { r.Permit.AskSent(ask, now) })
}

func (t *task) barrierRefused(message string) {
	t.post(func(r *attempt.Record) { r.BarrierRefused(message) })
}

// forget drops the attempt once nothing of it is left on the node. A running attempt continues: the store's ignorance
// of it is no reason to stop it (P1.7, P6.6).
func (t *task) forget() {
	t.post(func(r *attempt.Record) {
		if r.MayRun() && !t.agent.Without.Off(clause.Absence) {
			t.agent.Logger.Warn("the server forgot a task that runs here; it goes on", "task", t.id, "attempt",
				t.attempt)
			return
		}
		t.forgettable = true
		r.Forgotten()
	})
}

// run is the goroutine. It ends with ctx, or when the attempt is forgotten.
func (t *task) run(ctx context.Context) {
	defer t.stopWatching()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		t.handleEvents()
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
			return // the next run of the agent finds out what an interrupted step did
		}
	}
}

// handleEvents handles the waiting events.
func (t *task) handleEvents() {
	t.mu.Lock()
	happened := t.inbox
	t.inbox = nil
	t.mu.Unlock()
	for _, h := range happened {
		h(t.rec)
	}
}

// advance performs the next step, unless a step is running. It returns how long to wait without an event, negative for
// ever; over means that the attempt is forgotten.
func (t *task) advance(ctx context.Context) (wait time.Duration, over bool) {
	if t.busy {
		if t.rec.Attend(t.agent.now()) && t.currentStep == attempt.Prepare {
			t.cancel()
		}
		t.publish()
		return -1, false
	}
	def := t.currentDefinition()
	now := t.agent.now()
	t.rec.TTLWindow = t.agent.currentTTLWindow()
	step := t.rec.Next(def, now)
	t.publish()
	t.watch(ctx)
	t.check(ctx)
	t.followServices(ctx, def)
	if t.rec.Checks(def).HasDoubted(now) {
		t.agent.reports.sendSoon() // the reply extends the window of ttl updates
	}
	if t.rec.Phase == attempt.PhaseGone && t.forgettable {
		return 0, t.agent.remove(t)
	}
	if step.Do == attempt.Wait {
		t.agent.store.QueueAttempt(t.rec)
		if step.At == 0 {
			return -1, false
		}
		return max(step.At-now.Boot, 0), false
	}
	if step.Do == t.currentStep && !t.retryAt.IsZero() {
		if left := time.Until(t.retryAt); left > 0 {
			t.agent.store.QueueAttempt(t.rec)
			return left, false
		}
	}
	if step.Do == attempt.Prepare {
		t.agent.store.QueueAttempt(t.rec) // tells the next run of the agent what to remove
	}
	t.beginStep(ctx, step, def)
	return -1, false
}

func (t *task) currentDefinition() *cluster.TaskDefinition {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.def
}

// publish passes the attempt's state to the reports, the streams and the followers of its log.
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
	t.traceRunning(o.State)
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

// watch waits for the end of each running container.
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

// await waits for the end of a run, across failures of the executor.
func (t *task) await(ctx context.Context, name string, id executor.ID) {
	p := t.agent.newBackoff(minRetryBackoff, fastProbeInterval)
	for {
		exit, err := t.agent.waitForExit(ctx, name, id)
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
		t.agent.Logger.Warn("waiting for the end of a container failed", "task", t.id, "attempt", t.attempt,
			"container", id, "error", err)
		if !p.wait(ctx) {
			return
		}
	}
}

// stopWatching stops all work that the goroutine started.
func (t *task) stopWatching() {
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

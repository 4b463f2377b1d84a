// Package task drives the attempts of a node.
//
// A goroutine for each attempt asks the attempt's record (package attempt) for the next step, performs the step with an
// executor, and records the result. The preconditions of a step are durable before the step begins: the intent to
// launch (P4.4), the use of a permit (P5.2), and an accepted stop unless the disk is full.
package task

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/agent/pins"
	"github.com/berthd/berth/internal/agent/registrar"
	"github.com/berthd/berth/internal/agent/secrets"
	"github.com/berthd/berth/internal/agent/services"
	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/transport"
)

// Task drives one attempt. Its goroutine takes events in, asks the record for the next step, and performs one step at a
// time. Only that goroutine changes the record. Begin, Recover, Adopt, Commit and Publish are called before Run begins;
// all other exported methods may be called on any goroutine.
type Task struct {
	// ID and Containers do not change.
	ID         attempt.ID
	Containers RunningContainers

	parts      *Parts
	definition cluster.Ref
	cores      []int // CPUs that are exclusively the attempt's
	// acted is the newest assignment that the record has accepted.
	acted atomic.Pointer[transport.Known]
	// view is the newest state for readers on other goroutines.
	view atomic.Pointer[attempt.View]
	// def is the definition, nil until the agent has it.
	def atomic.Pointer[cluster.TaskDefinition]
	// ended is closed once no program of the attempt will run any more.
	ended    chan struct{}
	events   inbox
	secrets  *secrets.Task
	services *services.Follower

	// The remaining fields belong to the task's goroutine.
	rec         *attempt.Record
	step        currentStep
	exits       exitWatch
	checks      checkRunner
	trace       taskTrace
	shown       registrar.Shown
	forgettable bool // forget the attempt once nothing is left of it
}

// New returns the task of an attempt. Run is its goroutine.
func New(p *Parts, rec *attempt.Record) *Task {
	d := &rec.Desired
	id := attempt.ID{Task: d.Task, Attempt: d.Attempt, UUID: d.UUID}
	t := &Task{
		ID: id, parts: p, definition: d.Definition, cores: pins.CoresOf(d.Devices),
		ended: make(chan struct{}), events: inbox{wake: make(chan struct{}, 1)}, rec: rec,
		step:  currentStep{retry: p.NewBackoff(node.MinRetryBackoff, node.FastProbeInterval)},
		trace: taskTrace{parts: p, id: id, began: p.Boot(), ran: rec.Phase == attempt.PhaseRunning},
	}
	t.Containers = RunningContainers{view: t.View, executors: p.Executors}
	t.secrets, t.services = p.Secrets.ForTask(id, t, t.Containers), p.Services.ForTask(id, t, t.Containers)
	t.exits = exitWatch{
		node: p.Node, executors: p.Executors, id: id, events: &t.events, running: map[executor.ID]func(){},
	}
	t.checks = checkRunner{parts: p, events: &t.events, container: t.Containers.Running, mask: t.secrets.MaskText}
	t.noteAssignment(&transport.Assignment{Desired: rec.Desired, Revision: rec.Revision})
	return t
}

// Begin gives the attempt its definition, nil if the agent does not have it, and its session.
func (t *Task) Begin(def *cluster.TaskDefinition, s attempt.Session) {
	t.def.Store(def)
	t.rec.Session = s
}

// Recover continues the record of an earlier run of the agent, from the containers that its executor holds. A nil map
// means that no container of the attempt can run.
func (t *Task) Recover(held map[executor.ID]executor.Status, boot string) {
	t.rec.Recover(held, boot, t.parts.Now())
	t.Publish()
}

// Adopt takes over containers without a record and reports whether they are of use. The definition must be known.
func (t *Task) Adopt(name string, held []executor.Status) bool {
	return attempt.Adopt(t.rec, name, held, t.Definition(), t.parts.Now())
}

// DefinitionRef names the attempt's definition.
func (t *Task) DefinitionRef() cluster.Ref { return t.definition }

// Commit writes the attempt's record to the disk. The channel gets the result.
func (t *Task) Commit() <-chan error { return t.parts.Store.CommitAttempt(t.rec) }

// Status returns what readers on other goroutines may know of the attempt.
func (t *Task) Status() attempt.Status {
	return attempt.Status{ID: t.ID, Cores: t.cores, View: t.View(), Definition: t.Definition()}
}

// View returns the newest state, nil before the first.
func (t *Task) View() *attempt.View { return t.view.Load() }

// Definition returns the definition, nil until the agent has it.
func (t *Task) Definition() *cluster.TaskDefinition { return t.def.Load() }

// Ended is closed once no program of the attempt will run any more.
func (t *Task) Ended() <-chan struct{} { return t.ended }

// Known returns the newest assignment that the record has accepted.
func (t *Task) Known() transport.Known { return *t.acted.Load() }

// Assigned passes a newer assignment to the attempt. It revives an attempt that was to be forgotten, whose end is then
// reported. It returns false if nothing is left of the attempt to take the assignment.
func (t *Task) Assigned(as *transport.Assignment) bool {
	return t.events.put(func(r *attempt.Record) {
		if r.Update(&as.Desired, as.Revision) {
			t.noteAssignment(as)
			t.forgettable = false
		}
	})
}

// noteAssignment records which assignment the record has accepted.
func (t *Task) noteAssignment(as *transport.Assignment) {
	known := as.Known()
	t.acted.Store(&known)
}

// Defined gives the attempt its definition.
func (t *Task) Defined(d *cluster.TaskDefinition) {
	t.def.Store(d)
	t.WakeUp()
}

// WakeUp makes the goroutine run once more.
func (t *Task) WakeUp() { t.events.nudge() }

// Close makes the attempt take no more events, unless one already waits. It reports whether it did.
func (t *Task) Close() bool { return t.events.close() }

// BarrierPassed passes on that the start barrier was passed by a request that was first sent at asked (Boot).
func (t *Task) BarrierPassed(asked time.Duration) {
	t.events.put(func(r *attempt.Record) { r.BarrierPassed(asked) })
}

// BarrierRefused passes on that the server refused the start barrier.
func (t *Task) BarrierRefused(message string) {
	t.events.put(func(r *attempt.Record) { r.BarrierRefused(message) })
}

// InSession passes on that a session has begun.
func (t *Task) InSession(s attempt.Session) {
	t.events.put(func(r *attempt.Record) { r.Session = s })
}

// AskSent passes on that the request for a permit leaves now.
func (t *Task) AskSent(ask string) {
	now := t.parts.Now()
	t.events.put(func(r *attempt.Record) { r.Permit.AskSent(ask, now) })
}

// Renew restarts the attempt in place, unless the round is over.
func (t *Task) Renew(round int, why string) {
	t.events.put(func(r *attempt.Record) {
		if r.Renew(round, why) {
			t.parts.Logger.Info("a task is restarted in place", "task", t.ID.Task, "attempt", t.ID.Attempt,
				"reason", why)
		}
	})
}

// Note shows users what a container that is being made does or waits for.
func (t *Task) Note(container, text string) {
	t.events.put(func(r *attempt.Record) {
		if r.Phase == attempt.PhasePreparing {
			r.Note = "container " + container + ": " + text
		}
	})
}

// SetStamps passes on the current stamps of the attempt's secrets. Work that begins here ends with ctx.
func (t *Task) SetStamps(ctx context.Context, stamps map[string]string) {
	t.secrets.SetStamps(ctx, stamps)
}

// Forget drops the attempt once nothing of it is left on the node. A running attempt continues: the store's ignorance
// of it is no reason to stop it (P1.7, P6.6).
func (t *Task) Forget() {
	t.events.put(func(r *attempt.Record) {
		if r.MayRun() && !t.parts.Without.Off(clause.Absence) {
			t.parts.Logger.Warn("the server forgot a task that runs here; it continues", "task", t.ID.Task,
				"attempt", t.ID.Attempt)
			return
		}
		t.forgettable = true
		r.Forgotten()
	})
}

// Run is the task's goroutine. It ends with ctx, or when the attempt is forgotten.
func (t *Task) Run(ctx context.Context) {
	defer t.stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		for _, happened := range t.events.take() {
			happened(t.rec)
		}
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
		case <-t.events.wake:
		case <-due:
		}
		if ctx.Err() != nil {
			return // the next run of the agent finds out what an interrupted step did
		}
	}
}

// advance performs the next step, unless a step is running. It returns how long to wait without an event, negative
// forever; over means that the attempt is forgotten.
func (t *Task) advance(ctx context.Context) (wait time.Duration, over bool) {
	if t.step.busy {
		if t.rec.Attend(t.parts.Now()) && t.step.do == attempt.Prepare {
			t.step.cancel()
		}
		t.Publish()
		return -1, false
	}
	def := t.Definition()
	now := t.parts.Now()
	t.rec.TTLWindow = t.parts.TTLWindow()
	step := t.rec.Next(def, now)
	t.Publish()
	t.exits.update(ctx, t.rec)
	t.checks.update(ctx, t.rec, t.Definition())
	t.services.Advance(ctx, t.rec, def)
	if t.rec.Checks(def).HasDoubted(now) {
		t.parts.Reports.SendSoon() // the reply extends the window of ttl updates
	}
	if t.rec.Phase == attempt.PhaseGone && t.forgettable {
		return 0, t.parts.Forget(t)
	}
	if step.Do == attempt.Wait {
		t.parts.Store.QueueAttempt(t.rec)
		if step.At == 0 {
			return -1, false
		}
		return max(step.At-now.Boot, 0), false
	}
	if step.Do == t.step.do && !t.step.retryAt.IsZero() {
		if left := time.Until(t.step.retryAt); left > 0 {
			t.parts.Store.QueueAttempt(t.rec)
			return left, false
		}
	}
	if step.Do == attempt.Prepare {
		t.parts.Store.QueueAttempt(t.rec) // the next run of the agent then knows what to remove
	}
	t.beginStep(ctx, step, def)
	return -1, false
}

// Publish passes the attempt's state to the reports, the streams and the followers of its log.
func (t *Task) Publish() {
	def := t.Definition()
	v := &attempt.View{Record: *t.rec, Definition: def}
	v.Record.Containers = append([]attempt.Container(nil), t.rec.Containers...)
	t.view.Store(v)
	o := t.rec.Observed(def)
	if t.step.problem != "" && !o.State.Terminal() {
		o.Message = t.step.problem
	}
	if problem := t.services.Message(); problem != "" && o.Message == "" && o.State == cluster.StateRunning {
		o.Message = problem
	}
	ask := 0
	if t.rec.AtBarrier() {
		ask = t.rec.Barrier.Ask + 1
	}
	t.parts.Reports.Put(t, o, ask)
	if shown := registrar.ShownOf(v); shown != t.shown {
		t.shown = shown
		t.parts.Registrar.NoteChange()
	}
	t.trace.running(o.State, t.rec)
	if t.rec.Terminal() || t.rec.Phase == attempt.PhaseClosing {
		select {
		case <-t.ended:
		default:
			close(t.ended)
			if len(t.cores) > 0 {
				t.parts.Pins.NoteFreed()
			}
		}
	}
}

// stop stops all work that the goroutine started.
func (t *Task) stop() {
	t.exits.stop()
	t.checks.stop()
	if t.step.cancel != nil {
		t.step.cancel()
	}
}

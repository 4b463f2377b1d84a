package agent

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// What bounds a report: how long a change waits for others unless it is urgent, and how many tasks it holds.
const (
	coalesce = 20 * time.Millisecond
	// together is how long a report that somebody waits for is held back, so that what happens at one moment is told in
	// one.
	together  = 100 * time.Microsecond
	mostTasks = 1000
)

// retryFirst and retryMost are between two tries of a report, and of a task's part that was refused for now.
const (
	retryFirst = 100 * time.Millisecond
	retryMost  = 5 * time.Second
)

// reports holds what the server has to be told of each attempt. Tasks write the newest into it; one sender at
// a time takes from it all that changed.
type reports struct {
	agent *Agent
	wake  chan struct{} // capacity 1

	mu      sync.Mutex
	entries map[string]*entry // by UUID
	held    map[string]bool   // attempts that nothing is told of yet, by UUID
	dirty   []*entry          // to be sent, oldest change first
	urgent  bool              // one of dirty must not wait for others
	facts   *cluster.Facts    // changed, not sent
	pressed bool              // what the machine uses must not wait for the next heartbeat
}

// entry is one attempt.
type entry struct {
	task     *task
	observed cluster.Observed
	ask      int    // of the start barrier, 0 if none is asked for
	asking   string // the newest ask for a permit that was sent
	version  uint64
	acked    uint64 // the version that the server has
	queued   bool   // stands in dirty, or waits for its next try
	failures int    // tries of this version that were refused for now
}

// sent is what a report held of one attempt.
type sent struct {
	entry   *entry
	version uint64
	ask     int
	final   bool
}

func newReports(a *Agent) *reports {
	return &reports{agent: a, wake: make(chan struct{}, 1), entries: map[string]*entry{}, held: map[string]bool{}}
}

// hold keeps back all that is put of an attempt until release. An attempt that was told of and is then not known to
// the agent's next life counts as lost: so its record is made durable first.
func (r *reports) hold(uuid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[uuid] = true
}

func (r *reports) release(uuid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, uuid)
	if e := r.entries[uuid]; e != nil {
		r.queue(e)
	}
}

// put takes what is to be known of a task's attempt. Ask, unless 0, is the number of the request for its start
// barrier: a higher one is sent even if nothing else changed.
func (r *reports) put(t *task, o cluster.Observed, ask int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[o.UUID]
	if e == nil {
		e = &entry{task: t}
		r.entries[o.UUID] = e
	} else if e.ask == ask && reflect.DeepEqual(e.observed, o) {
		return
	}
	e.observed, e.ask = o, ask
	e.version++
	e.failures = 0
	r.queue(e)
}

// queue has the entry sent, unless it is kept back. r.mu is held.
func (r *reports) queue(e *entry) {
	if r.held[e.observed.UUID] {
		return
	}
	if e.urgent() {
		r.urgent = true
	}
	if !e.queued {
		e.queued = true
		r.dirty = append(r.dirty, e)
	}
	r.kick()
}

// urgent reports whether somebody waits for the answer: barriers and ends are committed before they are
// acknowledged (P4.6), and a permit may be used for a short time only (P5.2).
func (e *entry) urgent() bool {
	return e.ask != 0 || e.observed.State.Terminal() || e.observed.Ask != e.asking
}

func (r *reports) kick() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// drop forgets an attempt.
func (r *reports) drop(uuid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[uuid]; e != nil {
		delete(r.entries, uuid)
		r.dirty = slices.DeleteFunc(r.dirty, func(d *entry) bool { return d == e })
	}
}

func (r *reports) newFacts(f cluster.Facts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts = &f
	r.kick()
}

// press has the next report sent soon.
func (r *reports) press() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pressed = true
	r.kick()
}

// full returns everything, ordered by task, for a registration.
func (r *reports) full() ([]cluster.Observed, []sent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tasks := make([]cluster.Observed, 0, len(r.entries))
	versions := make([]sent, 0, len(r.entries))
	for uuid, e := range r.entries {
		if r.held[uuid] {
			continue
		}
		o := e.observed
		o.Node = r.agent.Name
		tasks = append(tasks, o)
		versions = append(versions, sent{entry: e, version: e.version})
	}
	slices.SortFunc(tasks, func(a, b cluster.Observed) int {
		return cmp.Or(cmp.Compare(a.Task, b.Task), cmp.Compare(a.Attempt, b.Attempt))
	})
	return tasks, versions
}

// order is that of a report: what somebody waits for first, then by task.
func (e *entry) order(other *entry) int {
	urgent := func(e *entry) int {
		if e.urgent() {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(urgent(e), urgent(other)), cmp.Compare(e.observed.Task, other.observed.Task),
		cmp.Compare(e.observed.Attempt, other.observed.Attempt))
}

// registered notes that a registration carried these versions. Barriers and ends are sent again: only the
// reply to a report says that they are durable. So is what the server did not take.
func (r *reports) registered(versions []sent, again []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts = nil
	for _, v := range versions {
		if uuid := v.entry.observed.UUID; slices.Contains(again, uuid) && r.entries[uuid] == v.entry {
			v.entry.acked = 0
			if !v.entry.queued {
				r.later(v.entry)
			}
			continue
		}
		v.entry.acked = max(v.entry.acked, v.version)
		if v.entry.urgent() && r.entries[v.entry.observed.UUID] == v.entry {
			v.entry.acked = 0
			r.queue(v.entry)
		}
	}
}

// take returns the next report's content.
func (r *reports) take() (tasks []cluster.Observed, items []sent, facts *cluster.Facts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	facts, r.facts = r.facts, nil
	r.pressed = false
	slices.SortStableFunc(r.dirty, (*entry).order)
	n := min(len(r.dirty), mostTasks)
	for _, e := range r.dirty[:n] {
		e.queued = false
		if e.acked >= e.version {
			continue
		}
		tasks = append(tasks, e.observed)
		items = append(items, sent{e, e.version, e.ask, e.urgent()})
		if e.observed.Ask != e.asking {
			e.asking = e.observed.Ask
			e.task.askSent(e.asking)
		}
	}
	r.dirty = append([]*entry(nil), r.dirty[n:]...)
	r.urgent = slices.ContainsFunc(r.dirty, (*entry).urgent)
	if len(r.dirty) > 0 {
		r.kick()
	}
	return tasks, items, facts
}

// again puts back what a report held that no session will answer any more.
func (r *reports) again(items []sent, facts *cluster.Facts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range items {
		if r.entries[s.entry.observed.UUID] == s.entry {
			r.queue(s.entry)
		}
	}
	if r.facts == nil {
		r.facts = facts
	}
}

// settle tells the tasks what became of a report that was sent first at asked (Boot).
func (r *reports) settle(items []sent, refused map[string]transport.Refused, asked time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range items {
		e := s.entry
		no, isRefused := refused[e.observed.UUID]
		if isRefused && no.Retry {
			r.later(e)
			continue
		}
		e.acked = max(e.acked, s.version)
		switch {
		case s.ask == 0:
			if isRefused {
				r.agent.Logger.Warn("the server refused a report", "task", e.observed.Task, "attempt",
					e.observed.Attempt,
					"state", e.observed.State, "reason", no.Reason, "message", no.Message)
			}
		case isRefused:
			e.task.barrierRefused(no.Message)
		default:
			e.task.barrierPassed(asked)
		}
	}
}

// later sends the entry again after a pause that grows. r.mu is held.
func (r *reports) later(e *entry) {
	if e.queued {
		return // a newer version is on its way
	}
	p := r.agent.pause(retryFirst, retryMost)
	p.failures = e.failures
	e.failures++
	e.queued = true
	time.AfterFunc(p.next(), func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if e.queued && r.entries[e.observed.UUID] == e && !slices.Contains(r.dirty, e) {
			r.dirty = append(r.dirty, e)
			r.urgent = r.urgent || e.urgent()
			r.kick()
		}
	})
}

// send reports what changes, and that the node lives, until ctx ends or the session is over, which
// it returns. Only one report is on its way at a time.
func (r *reports) send(ctx context.Context, welcome transport.Welcome) error {
	heartbeat := time.Duration(welcome.Heartbeat)
	for seq := uint64(1); ; seq++ {
		if !r.wait(ctx, r.beat(heartbeat)) {
			return ctx.Err()
		}
		tasks, items, facts := r.take()
		report := transport.Report{
			Node: r.agent.Name, Session: welcome.Session, Seq: seq, Tasks: tasks, Facts: facts,
			Stats: r.agent.machine.news(),
		}
		for i := range tasks {
			tasks[i].Node, tasks[i].Session, tasks[i].Seq = r.agent.Name, welcome.Session, seq
		}
		asked := r.agent.Boot()
		reply, err := r.deliver(ctx, report)
		if err != nil {
			r.again(items, facts)
			return err
		}
		if reply.Heartbeat > 0 {
			heartbeat = time.Duration(reply.Heartbeat)
		}
		r.agent.saw(reply.Token, 0)
		r.agent.learned(reply.Servers)
		r.agent.machine.toldUse(report.Stats, false)
		r.settle(items, reply.Refused, asked)
		r.agent.hears(asked)
	}
}

// defaultHeartbeat is used with a server that names none.
const defaultHeartbeat = 5 * time.Second

// beat returns when to report next, a little before the server expects it.
func (r *reports) beat(heartbeat time.Duration) time.Duration {
	if heartbeat <= 0 {
		heartbeat = defaultHeartbeat
	}
	return transport.Together(time.Now(), time.Duration((0.8+0.1*r.agent.Random())*float64(heartbeat)))
}

// wait waits until a report is due and reports false if ctx ended.
func (r *reports) wait(ctx context.Context, beat time.Duration) bool {
	due := time.NewTimer(beat)
	defer due.Stop()
	var soon <-chan time.Time
	pressing := false
	for {
		select {
		case <-ctx.Done():
			return false
		case <-due.C:
			return true
		case <-soon:
			return true
		case <-r.wake:
		}
		r.mu.Lock()
		urgent, some := r.urgent, len(r.dirty) > 0 || r.facts != nil || r.pressed
		r.mu.Unlock()
		pause := coalesce
		if urgent {
			pause = together
		}
		if urgent && !pressing || some && soon == nil {
			pressing = urgent
			timer := time.NewTimer(pause)
			defer timer.Stop()
			soon = timer.C
		}
	}
}

// deliver sends one report, under its number, until it is answered or the session is over.
func (r *reports) deliver(ctx context.Context, report transport.Report) (transport.ReportReply, error) {
	p := r.agent.pause(retryFirst, retryMost)
	for {
		reply, err := r.agent.Source.Report(ctx, report)
		switch {
		case err == nil:
			return reply, nil
		case ctx.Err() != nil:
			return reply, ctx.Err()
		case errors.Is(err, transport.ErrSession), errors.Is(err, transport.ErrElsewhere):
			return reply, err
		}
		r.agent.Logger.Debug("a report was not answered", "seq", report.Seq, "error", err)
		if !p.wait(ctx) {
			return reply, ctx.Err()
		}
	}
}

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

// Limits of a report.
const (
	// coalesceDelay is how long a change waits for others, unless it is urgent.
	coalesceDelay = 20 * time.Millisecond
	// urgentCoalesceDelay is how long an urgent report waits, so that changes of one moment go into one report.
	urgentCoalesceDelay = 100 * time.Microsecond
	maxTasksPerReport   = 1000
)

// Backoff between attempts to send a report, and to send an attempt's part that the server refused for now.
const (
	minRetryBackoff = 100 * time.Millisecond
	maxRetryBackoff = 5 * time.Second
)

// reports holds the newest state of each attempt for the server. Tasks write into it; one sender at a time takes all
// that changed.
type reports struct {
	agent *Agent
	wake  chan struct{} // capacity 1

	mu          sync.Mutex
	entries     map[string]*entry // by UUID
	held        map[string]bool   // attempts that are not reported yet, by UUID
	dirty       []*entry          // to be sent, oldest change first
	urgent      bool              // an entry in dirty must not wait for others
	facts       *cluster.Facts    // changed, not sent
	statsUrgent bool              // the statistics must not wait for the next heartbeat
}

// entry is the report state of one attempt.
type entry struct {
	task          *task
	observed      cluster.Observed
	barrierAsk    int    // number of the start barrier request, 0 for none
	sentPermitAsk string // the newest permit request that was sent
	version       uint64
	acked         uint64 // the newest version that the server has
	queued        bool   // is in dirty, or waits for its next attempt
	failures      int    // how often this version was refused for now
}

// reportItem is one attempt's part of a report.
type reportItem struct {
	entry   *entry
	version uint64
	ask     int
	final   bool
}

func newReports(a *Agent) *reports {
	return &reports{agent: a, wake: make(chan struct{}, 1), entries: map[string]*entry{}, held: map[string]bool{}}
}

// hold keeps an attempt out of reports until release. Its record becomes durable first: a reported attempt that the
// next run of the agent does not know would count as lost.
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

// put stores the newest state of an attempt. Ask, unless 0, is the number of the request for its start barrier; a
// higher number is sent even if nothing else changed.
func (r *reports) put(t *task, o cluster.Observed, ask int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[o.UUID]
	if e == nil {
		e = &entry{task: t}
		r.entries[o.UUID] = e
	} else if e.barrierAsk == ask && reflect.DeepEqual(e.observed, o) {
		return
	}
	e.observed, e.barrierAsk = o, ask
	e.version++
	e.failures = 0
	r.queue(e)
}

// queue schedules the entry, unless it is held. r.mu is held.
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
	r.wakeSender()
}

// urgent reports whether somebody waits for the answer: barriers and final states are committed before they are
// acknowledged (P4.6), and a permit is valid for a short time only (P5.2).
func (e *entry) urgent() bool {
	return e.barrierAsk != 0 || e.observed.State.Terminal() || e.observed.Ask != e.sentPermitAsk
}

func (r *reports) wakeSender() {
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
	r.wakeSender()
}

// sendSoon makes the next report leave soon.
func (r *reports) sendSoon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statsUrgent = true
	r.wakeSender()
}

// allEntries returns all entries, ordered by task, for a registration.
func (r *reports) allEntries() ([]cluster.Observed, []reportItem) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tasks := make([]cluster.Observed, 0, len(r.entries))
	versions := make([]reportItem, 0, len(r.entries))
	for uuid, e := range r.entries {
		if r.held[uuid] {
			continue
		}
		o := e.observed
		o.Node = r.agent.Name
		tasks = append(tasks, o)
		versions = append(versions, reportItem{entry: e, version: e.version})
	}
	slices.SortFunc(tasks, func(a, b cluster.Observed) int {
		return cmp.Or(cmp.Compare(a.Task, b.Task), cmp.Compare(a.Attempt, b.Attempt))
	})
	return tasks, versions
}

// order sorts the entries of a report: urgent ones first, then by task.
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

// registered records that a registration carried these versions. Barriers and final states are sent again, because only
// the reply to a report says that they are durable. So are the attempts in again, which the server did not take.
func (r *reports) registered(versions []reportItem, again []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts = nil
	for _, v := range versions {
		if uuid := v.entry.observed.UUID; slices.Contains(again, uuid) && r.entries[uuid] == v.entry {
			v.entry.acked = 0
			if !v.entry.queued {
				r.retryLater(v.entry)
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

// takeReport returns the content of the next report.
func (r *reports) takeReport() (tasks []cluster.Observed, items []reportItem, facts *cluster.Facts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	facts, r.facts = r.facts, nil
	r.statsUrgent = false
	slices.SortStableFunc(r.dirty, (*entry).order)
	n := min(len(r.dirty), maxTasksPerReport)
	for _, e := range r.dirty[:n] {
		e.queued = false
		if e.acked >= e.version {
			continue
		}
		tasks = append(tasks, e.observed)
		items = append(items, reportItem{e, e.version, e.barrierAsk, e.urgent()})
		if e.observed.Ask != e.sentPermitAsk {
			e.sentPermitAsk = e.observed.Ask
			e.task.askSent(e.sentPermitAsk)
		}
	}
	r.dirty = append([]*entry(nil), r.dirty[n:]...)
	r.urgent = slices.ContainsFunc(r.dirty, (*entry).urgent)
	if len(r.dirty) > 0 {
		r.wakeSender()
	}
	return tasks, items, facts
}

// requeue puts back the content of a report that got no answer in its session.
func (r *reports) requeue(items []reportItem, facts *cluster.Facts) {
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

// settle passes the result of a report to its tasks. The report was first sent at asked (Boot).
func (r *reports) settle(items []reportItem, refused map[string]transport.Refused, asked time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range items {
		e := s.entry
		no, isRefused := refused[e.observed.UUID]
		if isRefused && no.Retry {
			r.retryLater(e)
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

// retryLater sends the entry again after a backoff. r.mu is held.
func (r *reports) retryLater(e *entry) {
	if e.queued {
		return // a newer version is queued
	}
	p := r.agent.newBackoff(minRetryBackoff, maxRetryBackoff)
	p.failures = e.failures
	e.failures++
	e.queued = true
	time.AfterFunc(p.next(), func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if e.queued && r.entries[e.observed.UUID] == e && !slices.Contains(r.dirty, e) {
			r.dirty = append(r.dirty, e)
			r.urgent = r.urgent || e.urgent()
			r.wakeSender()
		}
	})
}

// send reports changes and heartbeats until ctx ends or the session is over, and returns the reason. At most one report
// is under way at a time.
func (r *reports) send(ctx context.Context, welcome transport.Welcome) error {
	heartbeat := time.Duration(welcome.Heartbeat)
	for seq := uint64(1); ; seq++ {
		if !r.wait(ctx, r.nextReportDelay(heartbeat)) {
			return ctx.Err()
		}
		tasks, items, facts := r.takeReport()
		report := transport.Report{
			Node: r.agent.Name, Session: welcome.Session, Seq: seq, Tasks: tasks, Facts: facts,
			Stats: r.agent.machine.unreportedUse(),
		}
		for i := range tasks {
			tasks[i].Node, tasks[i].Session, tasks[i].Seq = r.agent.Name, welcome.Session, seq
		}
		asked := r.agent.Boot()
		reply, err := r.deliver(ctx, report)
		if err != nil {
			r.requeue(items, facts)
			return err
		}
		if reply.Heartbeat > 0 {
			heartbeat = time.Duration(reply.Heartbeat)
		}
		r.agent.raiseMark(reply.Token, 0)
		r.agent.rememberServers(reply.Servers)
		r.agent.machine.noteReported(report.Stats, false)
		r.settle(items, reply.Refused, asked)
		r.agent.extendTTLWindow(asked)
	}
}

// defaultHeartbeat applies if the server sends none.
const defaultHeartbeat = 5 * time.Second

// nextReportDelay returns the delay until the next report, a little less than the server expects.
func (r *reports) nextReportDelay(heartbeat time.Duration) time.Duration {
	if heartbeat <= 0 {
		heartbeat = defaultHeartbeat
	}
	return transport.AlignReport(time.Now(), time.Duration((0.8+0.1*r.agent.Random())*float64(heartbeat)))
}

// wait waits until a report is due and reports false if ctx ended.
func (r *reports) wait(ctx context.Context, beat time.Duration) bool {
	due := time.NewTimer(beat)
	defer due.Stop()
	var soon <-chan time.Time
	urgentTimer := false
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
		urgent, some := r.urgent, len(r.dirty) > 0 || r.facts != nil || r.statsUrgent
		r.mu.Unlock()
		pause := coalesceDelay
		if urgent {
			pause = urgentCoalesceDelay
		}
		if urgent && !urgentTimer || some && soon == nil {
			urgentTimer = urgent
			timer := time.NewTimer(pause)
			defer timer.Stop()
			soon = timer.C
		}
	}
}

// deliver sends one report, under its number, until a server answers or the session is over.
func (r *reports) deliver(ctx context.Context, report transport.Report) (transport.ReportReply, error) {
	p := r.agent.newBackoff(minRetryBackoff, maxRetryBackoff)
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

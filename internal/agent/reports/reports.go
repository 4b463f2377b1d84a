// Package reports sends the state of attempts, facts and statistics to the server.
//
// A report holds the newest state of each attempt that changed. At most one report is under way. Start barriers and
// final states are sent until the reply says that they are durable (P4.6).
package reports

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/agent/state"
	"github.com/berthd/berth/internal/agent/usage"
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

// maxRetryBackoff is the longest time between attempts to send a report, and to send an attempt's part that the server
// refused for now. node.MinRetryBackoff is the shortest.
const maxRetryBackoff = 5 * time.Second

// Source takes reports for the server.
type Source interface {
	// Report sends a report. The reply comes once all that must be durable is durable (P4.6).
	Report(ctx context.Context, r transport.Report) (transport.ReportReply, error)
}

// Attempt is an attempt as its reports see it. The methods do not block.
type Attempt interface {
	// AskSent passes on that the request for a permit leaves now.
	AskSent(ask string)
	// BarrierPassed passes on that the start barrier was passed by a request that was first sent at asked (Boot).
	BarrierPassed(asked time.Duration)
	// BarrierRefused passes on that the server refused the start barrier.
	BarrierRefused(message string)
}

// Reports holds the newest state of each attempt for the server. Tasks write into it; one sender at a time takes all
// that changed.
type Reports struct {
	Node   *node.Node
	Source Source
	marks  *state.Marks
	Stats  *usage.Statistics
	// Answered takes the time at which a request was first sent that a server answered now (Boot).
	Answered func(asked time.Duration)
	// Changed, unless nil, is called when the state of an attempt changed or an attempt is gone. It does not block.
	Changed func()

	wake chan struct{} // capacity 1

	mu          sync.Mutex
	entries     map[string]*entry // by UUID
	held        map[string]bool   // attempts that are not reported yet, by UUID
	dirty       []*entry          // to be sent, oldest change first
	urgent      bool              // an entry in dirty must not wait for others
	facts       *cluster.Facts    // changed, not sent
	statsUrgent bool              // the statistics must not wait for the next heartbeat
}

// Begin prepares for a run of the agent.
func (r *Reports) Begin(marks *state.Marks) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.marks, r.wake = marks, make(chan struct{}, 1)
	r.entries, r.held, r.dirty = map[string]*entry{}, map[string]bool{}, nil
	r.urgent, r.facts, r.statsUrgent = false, nil, false
}

// Hold keeps an attempt out of reports until Release. Its record becomes durable first: a reported attempt that the
// next run of the agent does not know would count as lost.
func (r *Reports) Hold(uuid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[uuid] = true
}

// Release ends Hold; the attempt is reported from now on.
func (r *Reports) Release(uuid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, uuid)
	if e := r.entries[uuid]; e != nil {
		r.queue(e)
	}
}

// Put stores the newest state of an attempt. Ask, unless 0, is the number of the request for its start barrier; a
// higher number is sent even if nothing else changed.
func (r *Reports) Put(t Attempt, o cluster.Observed, ask int) {
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
	r.noteChange()
}

func (r *Reports) noteChange() {
	if r.Changed != nil {
		r.Changed()
	}
}

// queue schedules the entry, unless it is held. r.mu is held.
func (r *Reports) queue(e *entry) {
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

func (r *Reports) wakeSender() { node.Nudge(r.wake) }

// Drop forgets an attempt.
func (r *Reports) Drop(uuid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[uuid]; e != nil {
		delete(r.entries, uuid)
		r.noteChange()
		r.dirty = slices.DeleteFunc(r.dirty, func(d *entry) bool { return d == e })
	}
}

// NewFacts puts the facts of the node into the next report, which leaves soon.
func (r *Reports) NewFacts(f cluster.Facts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts = &f
	r.wakeSender()
}

// SendSoon makes the next report leave soon.
func (r *Reports) SendSoon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statsUrgent = true
	r.wakeSender()
}

// All returns the states of all attempts, ordered by task, for a registration. The caller adds the facts of the node,
// which it reads afterwards: only facts that are newer than this call are in the next report.
func (r *Reports) All() ([]cluster.Observed, []Item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts = nil
	tasks := make([]cluster.Observed, 0, len(r.entries))
	versions := make([]Item, 0, len(r.entries))
	for uuid, e := range r.entries {
		if r.held[uuid] {
			continue
		}
		o := e.observed
		o.Node = r.Node.Name
		tasks = append(tasks, o)
		versions = append(versions, Item{entry: e, version: e.version})
	}
	slices.SortFunc(tasks, func(a, b cluster.Observed) int {
		return cmp.Or(cmp.Compare(a.Task, b.Task), cmp.Compare(a.Attempt, b.Attempt))
	})
	return tasks, versions
}

// Registered records that a registration carried these versions. Barriers and final states are sent again, because only
// the reply to a report says that they are durable. So are the attempts in again, which the server did not take.
func (r *Reports) Registered(versions []Item, again []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
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
func (r *Reports) takeReport() (tasks []cluster.Observed, items []Item, facts *cluster.Facts) {
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
		items = append(items, Item{e, e.version, e.barrierAsk})
		if e.observed.Ask != e.sentPermitAsk {
			e.sentPermitAsk = e.observed.Ask
			e.task.AskSent(e.sentPermitAsk)
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
func (r *Reports) requeue(items []Item, facts *cluster.Facts) {
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
func (r *Reports) settle(items []Item, refused map[string]transport.Refused, asked time.Duration) {
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
				r.Node.Logger.Warn("the server refused a report", "task", e.observed.Task, "attempt",
					e.observed.Attempt,
					"state", e.observed.State, "reason", no.Reason, "message", no.Message)
			}
		case isRefused:
			e.task.BarrierRefused(no.Message)
		default:
			e.task.BarrierPassed(asked)
		}
	}
}

// retryLater sends the entry again after a backoff. r.mu is held.
func (r *Reports) retryLater(e *entry) {
	if e.queued {
		return // a newer version is queued
	}
	p := r.Node.NewBackoff(node.MinRetryBackoff, maxRetryBackoff)
	p.SetFailures(e.failures)
	e.failures++
	e.queued = true
	time.AfterFunc(p.Next(), func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if e.queued && r.entries[e.observed.UUID] == e && !slices.Contains(r.dirty, e) {
			r.dirty = append(r.dirty, e)
			r.urgent = r.urgent || e.urgent()
			r.wakeSender()
		}
	})
}

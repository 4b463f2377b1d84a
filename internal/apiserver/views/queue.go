package views

import (
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// Queue returns what waits for placement in the builder's domain, the first in line first and held tasks last. Entries
// of clusters that sees does not accept and of owners that selects does not accept are left out; their tasks count in
// the positions of the others. So are entries beyond the first ones, limit in all.
func (b *Builder) Queue(limit int, sees func(name string) bool, selects func(cluster.OwnerRef) bool) api.Queue {
	w := b.queue.waitingLine()
	pending, order, held := w.pending, w.order, w.held
	b.queue.forecast()
	q := queueList{
		Builder: b, limit: limit, fair: map[fairEntry]int{}, waiting: map[cluster.OwnerRef]*waitingSteps{},
		selects: func(o cluster.OwnerRef) bool { return sees(o.Cluster) && selects(o) },
	}
	q.Entries, q.Revision = []api.QueueEntry{}, b.Snapshot.Revision()
	for i, at := range order {
		p := &pending[at.Pending]
		q.add(p, at.Ahead+1, i > 0 && isNext(&pending[order[i-1].Pending], p))
		q.Tasks += p.Tasks()
	}
	for i, at := range held {
		q.add(&pending[at], 0, i > 0 && isNext(&pending[held[i-1]], &pending[at]))
	}
	for _, s := range scheduler.Shares(w.fleet, pending) {
		if sees(s.Cluster) {
			q.Shares = append(q.Shares, api.QueueShare(s))
		}
	}
	return q.Queue
}

// waitingLine is all that waits, in the order of placement.
type waitingLine struct {
	pending []cluster.Pending
	order   []scheduler.Turn
	held    []int32
	fleet   *scheduler.Fleet // if the order depends on it, else empty
	tasks   int              // the number of tasks in line
}

// waitingLine returns the line. It is computed once.
func (q *queue) waitingLine() *waitingLine {
	if q.line != nil {
		return q.line
	}
	w := &waitingLine{pending: q.allPending()}
	w.fleet = q.fleetFor(w.pending)
	w.order, w.held = scheduler.Order(w.fleet, w.pending, q.Domain.Now)
	for _, at := range w.order {
		w.tasks += w.pending[at.Pending].Tasks()
	}
	q.line = w
	return w
}

// position returns the place of a task in line, from 1, or 0 if it is not known: the task is held, or not the first of
// a request in a fair queue.
func (w *waitingLine) position(o cluster.OwnerRef, task cluster.TaskID) int {
	for _, at := range w.order {
		p := &w.pending[at.Pending]
		if p.Owner != o || !p.Range().Has(task) {
			continue
		}
		if p.Task == task {
			return at.Ahead + 1
		}
		if p.Queue == cluster.QueueFair {
			return 0
		}
		_, first, _ := p.Task.Cut()
		_, index, _ := task.Cut()
		return at.Ahead + 1 + index - first
	}
	return 0
}

// fleetFor returns the fleet if the order of placement depends on it, which is so in fair queues and for jobs of
// clusters that may borrow, else an empty one.
func (q *queue) fleetFor(pending []cluster.Pending) *scheduler.Fleet {
	mayBorrow := map[string]bool{} // by cluster
	for e := range q.Snapshot.Clusters() {
		if q := e.Value.Quota; q != nil && q.Borrow != nil {
			mayBorrow[e.Value.Name] = true
		}
	}
	for i := range pending {
		p := &pending[i]
		if p.Queue == cluster.QueueFair || p.Owner.Kind == cluster.KindJob && mayBorrow[p.Owner.Cluster] {
			return q.Fleet()
		}
	}
	return scheduler.NewFleet()
}

// allPending returns the pending tasks of all owners, as views show them.
func (q *queue) allPending() []cluster.Pending {
	var lists [][]cluster.Pending
	add := func(o cluster.OwnerRef) {
		if c, _ := q.Snapshot.Cluster(o.Cluster); c.Value.InDomain() != q.Domain.Name {
			return
		}
		lists = append(lists, listed(q.Domain.Decide(o, q.Domain.Tasks(o)).Pending))
	}
	for e := range q.Snapshot.Services("") {
		add(e.Value.Owner())
	}
	for e := range q.Snapshot.Jobs("") {
		add(e.Value.Owner())
	}
	return slices.Concat(lists...)
}

// isNext reports whether two tasks may be of one entry.
func isNext(a, b *cluster.Pending) bool {
	return a.Owner == b.Owner && a.Priority == b.Priority && stepOf(a.Task) == stepOf(b.Task)
}

func stepOf(task cluster.TaskID) string {
	parts, _ := task.Parts()
	return parts.Step
}

// queueList is a queue to which entries are added.
type queueList struct {
	*Builder
	api.Queue
	// selects reports whether entries of an owner are added, at most limit.
	selects func(cluster.OwnerRef) bool
	limit   int
	fair    map[fairEntry]int // indices of entries in fair queues, whose tasks take turns with others
	// waiting are the entries of jobs whose steps wait for other steps.
	waiting map[cluster.OwnerRef]*waitingSteps
}

// maxWaitingSteps is how many entries a job has in the queue for steps that wait for other steps. One further entry has
// the rest of them.
const maxWaitingSteps = 10

// waitingSteps are the entries of steps of a job that wait for other steps.
type waitingSteps struct {
	entries int
	rest    int             // the index of the entry of several steps
	steps   map[string]bool // of that entry
}

// fairEntry identifies an entry in a fair queue.
type fairEntry struct {
	owner   cluster.OwnerRef
	step    string
	reason  cluster.ReasonCode
	message string
}

// add adds the tasks of a request to the last entry if they belong there, or to an earlier one in a fair queue, else as
// a new entry.
func (q *queueList) add(p *cluster.Pending, position int, next bool) {
	if !q.selects(p.Owner) {
		return
	}
	if q.LeftOut > 0 {
		q.LeftOut += p.Tasks()
		return
	}
	reason, message := p.Hold.Reason, p.Hold.Message
	var promise *cluster.Promise
	if why, ok := q.waitingReason(p.Task); ok && reason == "" {
		message, promise = why.Sentence, why.Promise
		if len(why.Refusals) > 0 {
			reason = why.Refusals[0].Code
		}
	}
	expected, last := q.queue.expected(p, promise)
	fair := position > 0 && p.Queue == cluster.QueueFair && p.Owner.Kind == cluster.KindJob
	n := len(q.Entries) - 1
	same := next && n >= 0 && q.Entries[n].Reason == reason && q.Entries[n].Message == message
	if fair {
		key := fairEntry{p.Owner, stepOf(p.Task), reason, message}
		if n, same = q.fair[key]; !same {
			q.fair[key] = len(q.Entries)
		}
	}
	if same {
		q.Entries[n].Tasks += p.Tasks()
		q.Entries[n].ExpectedLast = last
		return
	}
	if p.Hold.Reason == cluster.ReasonNeeds && q.addWaitingStep(p) {
		return
	}
	if len(q.Entries) == q.limit {
		q.LeftOut = p.Tasks()
		return
	}
	if p.Tasks() == 1 {
		last = nil
	}
	q.Entries = append(q.Entries, api.QueueEntry{
		Position: position, Fair: fair, Owner: p.Owner, Step: stepOf(p.Task), Tasks: p.Tasks(), User: p.User,
		First: p.Task, Priority: p.Priority, Since: p.Since, Reason: reason, Message: message, Promise: promise,
		Expected: expected, ExpectedLast: last,
	})
}

// addWaitingStep adds the tasks of a step that waits for other steps to the entry of several steps, and reports whether
// it did. Otherwise the caller adds an entry.
func (q *queueList) addWaitingStep(p *cluster.Pending) bool {
	w := q.waiting[p.Owner]
	if w == nil {
		w = &waitingSteps{steps: map[string]bool{}}
		q.waiting[p.Owner] = w
	}
	w.entries++
	if w.entries <= maxWaitingSteps {
		return false
	}
	w.steps[stepOf(p.Task)] = true
	if w.entries == maxWaitingSteps+1 {
		w.rest = len(q.Entries)
		return false
	}
	e := &q.Entries[w.rest]
	e.Tasks += p.Tasks()
	if n := len(w.steps); n > 1 {
		e.Steps = n
	}
	return true
}

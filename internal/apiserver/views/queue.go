package views

import (
	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// Queue returns what waits for placement, the first in line first and held tasks last. Entries of clusters that sees
// does not accept are left out; their tasks count in the positions of the others.
func (b *Builder) Queue(sees func(name string) bool) api.Queue {
	var pending []cluster.Pending
	add := func(o cluster.OwnerRef) {
		pending = append(pending, listed(b.Domain.Decide(o, b.Domain.Tasks(o)).Pending)...)
	}
	for e := range b.Snapshot.Services("") {
		add(e.Value.Owner())
	}
	for e := range b.Snapshot.Jobs("") {
		add(e.Value.Owner())
	}
	order, held := scheduler.Order(pending, b.Domain.Now)
	q := api.Queue{Entries: []api.QueueEntry{}, Revision: b.Snapshot.Revision()}
	for i, at := range order {
		p := &pending[at]
		b.enqueue(&q, p, q.Tasks+1, i > 0 && isNext(&pending[order[i-1]], p), sees)
		q.Tasks += p.Tasks()
	}
	for i, at := range held {
		b.enqueue(&q, &pending[at], 0, i > 0 && isNext(&pending[held[i-1]], &pending[at]), sees)
	}
	return q
}

// isNext reports whether two tasks may be of one entry.
func isNext(a, b *cluster.Pending) bool {
	return a.Owner == b.Owner && a.Priority == b.Priority && stepOf(a.Task) == stepOf(b.Task)
}

func stepOf(task cluster.TaskID) string {
	parts, _ := task.Parts()
	return parts.Step
}

// enqueue adds the tasks of a request to the last entry if they belong there, else as a new entry.
func (b *Builder) enqueue(q *api.Queue, p *cluster.Pending, position int, next bool, sees func(string) bool) {
	if !sees(p.Owner.Cluster) {
		return
	}
	reason, message := p.Hold.Reason, p.Hold.Message
	var promise *cluster.Promise
	if why, ok := b.waitingReason(p.Task); ok && reason == "" {
		message, promise = why.Sentence, why.Promise
		if len(why.Refusals) > 0 {
			reason = why.Refusals[0].Code
		}
	}
	if n := len(q.Entries); next && n > 0 && q.Entries[n-1].Reason == reason && q.Entries[n-1].Message == message {
		q.Entries[n-1].Tasks += p.Tasks()
		return
	}
	q.Entries = append(q.Entries, api.QueueEntry{
		Position: position, Owner: p.Owner, Step: stepOf(p.Task), Tasks: p.Tasks(), First: p.Task, Priority: p.Priority,
		Since: p.Since, Reason: reason, Message: message,
		Promise: promise,
	})
}

// Package queue holds the owners that a leader is to decide for, and when.
package queue

import (
	"maps"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Owners holds the owners that the next cycles decide for: those that a change concerns, and those whose timer is
// due. A marked owner stays in the queue until a cycle has decided for it. The queue is for one goroutine.
type Owners struct {
	prefix store.Prefix
	// maxTasks is the number of tasks that one cycle decides for.
	maxTasks int
	// marked are the owners of the next cycle; all others are decided for when their timer is due.
	marked map[cluster.OwnerRef]bool
	timers *Timers
	// deferred counts, for each owner left to the next cycle, how often in a row it was left. A higher count comes
	// first.
	deferred map[cluster.OwnerRef]int
	// awaits are the services and jobs that an owner waits for; awaited is the reverse.
	awaits  map[cluster.OwnerRef][]cluster.OwnerRef
	awaited map[cluster.OwnerRef]map[cluster.OwnerRef]bool
}

// NewOwners returns an empty queue. One cycle decides for maxTasks tasks at most.
func NewOwners(p store.Prefix, maxTasks int) *Owners {
	return &Owners{
		prefix: p, maxTasks: maxTasks, marked: map[cluster.OwnerRef]bool{}, timers: NewTimers(),
		awaits:  map[cluster.OwnerRef][]cluster.OwnerRef{},
		awaited: map[cluster.OwnerRef]map[cluster.OwnerRef]bool{},
	}
}

// Await notes which owners another one waits for now; none ends the wait.
func (q *Owners) Await(o cluster.OwnerRef, needed []cluster.OwnerRef) {
	for _, n := range q.awaits[o] {
		if delete(q.awaited[n], o); len(q.awaited[n]) == 0 {
			delete(q.awaited, n)
		}
	}
	if delete(q.awaits, o); len(needed) == 0 {
		return
	}
	q.awaits[o] = needed
	for _, n := range needed {
		if q.awaited[n] == nil {
			q.awaited[n] = map[cluster.OwnerRef]bool{}
		}
		q.awaited[n][o] = true
	}
}

// MarkAwaiting marks the owners that wait for a marked one.
func (q *Owners) MarkAwaiting() {
	if len(q.awaited) == 0 {
		return
	}
	for o := range maps.Clone(q.marked) { // order-free: a set
		for waiting := range q.awaited[o] { // order-free: a set
			q.Mark(waiting)
		}
	}
}

// Mark has the next cycle decide for an owner.
func (q *Owners) Mark(o cluster.OwnerRef) { q.marked[o] = true }

// MarkOwners marks some owners.
func (q *Owners) MarkOwners(owners []cluster.OwnerRef) {
	for _, o := range owners {
		q.Mark(o)
	}
}

// MarkTask marks the owner of a task.
func (q *Owners) MarkTask(task cluster.TaskID) {
	if o, ok := task.Owner(); ok {
		q.Mark(o)
	}
}

// MarkDue marks the owners whose timer is due.
func (q *Owners) MarkDue(now time.Time) { q.MarkOwners(q.timers.TakeDue(now)) }

// IsMarked reports whether the next cycle decides for an owner.
func (q *Owners) IsMarked(o cluster.OwnerRef) bool { return q.marked[o] }

// UnmarkAll empties the queue, before all owners are marked again.
func (q *Owners) UnmarkAll() { clear(q.marked) }

// HasMarked reports whether a marked owner matches.
func (q *Owners) HasMarked(matches func(cluster.OwnerRef) bool) bool {
	for o := range q.marked { // order-free: any of them
		if matches(o) {
			return true
		}
	}
	return false
}

// IsEmpty reports whether no owner is marked.
func (q *Owners) IsEmpty() bool { return len(q.marked) == 0 }

// HasDeferred reports whether the last cycle left owners to the next one.
func (q *Owners) HasDeferred() bool { return len(q.deferred) > 0 }

// SetTimer sets when an owner is decided for though nothing changed; the zero time means never.
func (q *Owners) SetTimer(o cluster.OwnerRef, at time.Time) { q.timers.Set(o, at) }

// Next returns the earliest timer, and false if there is none.
func (q *Owners) Next() (time.Time, bool) { return q.timers.Next() }

// Ordered returns the marked owners in the order of their decisions, without those that skip reports. The owners in
// first come first, then those deferred most often. If one cycle may not suffice for all owners, higher priorities come
// before lower ones, so that their tasks are placed first.
func (q *Owners) Ordered(snap *store.Snapshot, first map[cluster.OwnerRef]bool,
	skip func(cluster.OwnerRef) bool,
) []cluster.OwnerRef {
	owners := make([]cluster.OwnerRef, 0, len(q.marked))
	priority := map[cluster.OwnerRef]int{}
	// An owner has two tasks or more in most cases.
	mayNotFinish := snap.AttemptCount() > q.maxTasks || len(q.marked) > q.maxTasks/2
	for o := range q.marked { // order-free: sorted next
		if skip(o) {
			continue
		}
		owners = append(owners, o)
		if mayNotFinish {
			priority[o] = priorityOf(snap, o)
		}
	}
	slices.SortFunc(owners, func(a, b cluster.OwnerRef) int {
		switch pa, pb := priority[a], priority[b]; {
		case first[a] != first[b]:
			if first[a] {
				return -1
			}
			return 1
		case q.deferred[a] != q.deferred[b]: // or owners that change all the time would starve the others
			return q.deferred[b] - q.deferred[a]
		case pa != pb:
			return pb - pa
		}
		return a.Compare(b)
	})
	return owners
}

// Finish ends a cycle that decided for some owners. It returns the owners that stay marked, without those that skip
// reports, and counts how often each was deferred.
func (q *Owners) Finish(decided []cluster.OwnerRef, skip func(cluster.OwnerRef) bool) (left []cluster.OwnerRef) {
	for _, o := range decided {
		delete(q.marked, o)
	}
	deferred := make(map[cluster.OwnerRef]int, len(q.marked))
	for o := range q.marked { // order-free: each by itself
		if !skip(o) {
			deferred[o] = q.deferred[o] + 1
			left = append(left, o)
		}
	}
	q.deferred = deferred
	return left
}

func priorityOf(snap *store.Snapshot, o cluster.OwnerRef) int {
	if o.Kind == cluster.KindJob {
		if e, ok := snap.Job(o.Cluster, o.Name); ok {
			return int(e.Value.Priority)
		}
		return 0
	}
	if e, ok := snap.Service(o.Cluster, o.Name); ok {
		return int(e.Value.Priority)
	}
	return 0
}

package controlplane

import (
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// ownerQueue holds the owners that the next cycles decide for: those that a change concerns, and those whose timer is
// due. A marked owner stays in the queue until a cycle has decided for it. The queue is for one goroutine.
type ownerQueue struct {
	prefix store.Prefix
	// maxTasks is the number of tasks that one cycle decides for.
	maxTasks int
	// dirty owners are decided for in the next cycle; all others when their timer is due.
	dirty  map[cluster.OwnerRef]bool
	timers *timerQueue
	// deferred counts, for each owner left to the next cycle, how often in a row it was left. A higher count comes
	// first.
	deferred map[cluster.OwnerRef]int
}

func newOwnerQueue(p store.Prefix, maxTasks int) *ownerQueue {
	return &ownerQueue{prefix: p, maxTasks: maxTasks, dirty: map[cluster.OwnerRef]bool{}, timers: newTimerQueue()}
}

// mark has the next cycle decide for an owner.
func (q *ownerQueue) mark(o cluster.OwnerRef) { q.dirty[o] = true }

// markOwners marks some owners.
func (q *ownerQueue) markOwners(owners []cluster.OwnerRef) {
	for _, o := range owners {
		q.mark(o)
	}
}

// markTask marks the owner of a task.
func (q *ownerQueue) markTask(task cluster.TaskID) {
	if o, ok := (&store.AttemptRow{Task: task}).Ref(); ok {
		q.mark(o)
	}
}

// markDue marks the owners whose timer is due.
func (q *ownerQueue) markDue(now time.Time) { q.markOwners(q.timers.takeDue(now)) }

// isMarked reports whether the next cycle decides for an owner.
func (q *ownerQueue) isMarked(o cluster.OwnerRef) bool { return q.dirty[o] }

// unmarkAll empties the queue, before all owners are marked anew.
func (q *ownerQueue) unmarkAll() { clear(q.dirty) }

// isEmpty reports whether no owner is marked.
func (q *ownerQueue) isEmpty() bool { return len(q.dirty) == 0 }

// hasDeferred reports whether the last cycle left owners to the next one.
func (q *ownerQueue) hasDeferred() bool { return len(q.deferred) > 0 }

// setTimer sets when an owner is decided for though nothing changed; the zero time stands for never.
func (q *ownerQueue) setTimer(o cluster.OwnerRef, at time.Time) { q.timers.set(o, at) }

// next returns the earliest timer, and false if there is none.
func (q *ownerQueue) next() (time.Time, bool) { return q.timers.next() }

// ordered returns the marked owners in the order of their decisions, without those that skip reports. The owners in
// first come first, then those deferred most often. If one cycle may not suffice for all owners, higher priorities come
// before lower ones, so that their tasks are placed first.
func (q *ownerQueue) ordered(snap *store.Snapshot, first map[cluster.OwnerRef]bool,
	skip func(cluster.OwnerRef) bool,
) []cluster.OwnerRef {
	owners := make([]cluster.OwnerRef, 0, len(q.dirty))
	priority := map[cluster.OwnerRef]int{}
	overloaded := snap.AttemptCount() > q.maxTasks || len(q.dirty) > q.maxTasks/2
	for o := range q.dirty { // order-free: sorted next
		if skip(o) {
			continue
		}
		owners = append(owners, o)
		if overloaded {
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
		case a.Less(b):
			return -1
		}
		return 1
	})
	return owners
}

// finish ends a cycle that decided for some owners. It returns the owners that stay marked, without those that skip
// reports, and counts how often each was deferred.
func (q *ownerQueue) finish(decided []cluster.OwnerRef, skip func(cluster.OwnerRef) bool) (left []cluster.OwnerRef) {
	for _, o := range decided {
		delete(q.dirty, o)
	}
	deferred := make(map[cluster.OwnerRef]int, len(q.dirty))
	for o := range q.dirty { // order-free: each by itself
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
			return e.Value.Priority
		}
		return 0
	}
	if e, ok := snap.Service(o.Cluster, o.Name); ok {
		return e.Value.Priority
	}
	return 0
}

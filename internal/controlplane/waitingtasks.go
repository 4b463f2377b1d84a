package controlplane

import (
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
)

// waitingTasks holds what the next placement is to find places for: the pending tasks of each owner, and its tasks that
// should move. It holds the result of the last decision about an owner, as long as nothing of it was placed since. It
// is for one goroutine.
type waitingTasks struct {
	pending map[cluster.OwnerRef][]cluster.Pending
	moves   map[cluster.OwnerRef][]reconciler.Move
	// arrivals learns from each task that begins to wait.
	arrivals deviceValues
	// changed says that the tasks changed since the last takeChanged.
	changed bool
}

func newWaitingTasks() *waitingTasks {
	return &waitingTasks{
		pending: map[cluster.OwnerRef][]cluster.Pending{}, moves: map[cluster.OwnerRef][]reconciler.Move{},
	}
}

// set keeps the pending tasks and the moves of an owner.
func (t *waitingTasks) set(o cluster.OwnerRef, pending []cluster.Pending, moves []reconciler.Move) {
	if len(pending)+len(moves)+len(t.pending[o])+len(t.moves[o]) == 0 {
		return
	}
	t.changed = true
	t.arrivals.learnArrivals(t.pending[o], pending)
	t.drop(o)
	if len(pending) > 0 {
		t.pending[o] = pending
	}
	if len(moves) > 0 {
		t.moves[o] = moves
	}
}

// drop forgets the tasks of an owner, as some of them were placed. The others found no place on an emptier fleet, so
// this calls for no other placement.
func (t *waitingTasks) drop(o cluster.OwnerRef) {
	delete(t.pending, o)
	delete(t.moves, o)
}

// takeChanged reports whether the tasks changed since the last call.
func (t *waitingTasks) takeChanged() bool {
	changed := t.changed
	t.changed = false
	return changed
}

// count returns the number of pending tasks.
func (t *waitingTasks) count() int {
	n := 0
	for _, p := range t.pending { // order-free: a sum
		n += cluster.CountTasks(p)
	}
	return n
}

// all returns the requests of all owners, and the moves. They are sorted by owner for the same result each time;
// package scheduler/cycle orders them for placement.
func (t *waitingTasks) all() (pending []cluster.Pending, moves []*reconciler.Move) {
	total := 0
	for _, p := range t.pending { // order-free: a sum
		total += len(p)
	}
	pending = make([]cluster.Pending, 0, total) // they are large
	for _, o := range sortedOwners(t.pending) {
		pending = append(pending, t.pending[o]...)
	}
	for _, o := range sortedOwners(t.moves) {
		for i := range t.moves[o] {
			moves = append(moves, &t.moves[o][i])
		}
	}
	return pending, moves
}

func sortedOwners[T any](by map[cluster.OwnerRef]T) []cluster.OwnerRef {
	return slices.SortedFunc(maps.Keys(by), cluster.OwnerRef.Compare)
}

package controlplane

import (
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
		n += len(p)
	}
	return n
}

// all returns the pending tasks of all owners, followed by the tasks that should move, and the moves. They are sorted
// by owner for the same result each time; package scheduler/cycle orders them for placement.
func (t *waitingTasks) all() ([]cluster.Pending, []*reconciler.Move) {
	owners := make([]cluster.OwnerRef, 0, len(t.pending))
	for o := range t.pending { // order-free: sorted next
		owners = append(owners, o)
	}
	for o := range t.moves { // order-free: sorted next
		if len(t.pending[o]) == 0 {
			owners = append(owners, o)
		}
	}
	slices.SortFunc(owners, func(a, b cluster.OwnerRef) int {
		if a.Less(b) {
			return -1
		}
		return 1
	})
	total := 0
	for _, o := range owners {
		total += len(t.pending[o]) + len(t.moves[o])
	}
	out := make([]cluster.Pending, 0, total) // they are large
	var moves []*reconciler.Move
	for _, o := range owners {
		out = append(out, t.pending[o]...)
		for i := range t.moves[o] {
			moves = append(moves, &t.moves[o][i])
		}
	}
	for _, m := range moves {
		out = append(out, m.Next)
	}
	return out, moves
}

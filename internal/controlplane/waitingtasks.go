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
	// merged is the result of the last call of all, of which the lists of the owners are parts, and nil if they changed
	// since. tasks is the number of pending tasks.
	merged []cluster.Pending
	tasks  int
	// arrivals learns from each task that begins to wait.
	arrivals deviceValues
	// changed says that the tasks changed since the last takeChanged.
	changed bool
	// noteOwner learns each owner whose pending tasks changed.
	noteOwner func(cluster.OwnerRef)
}

func newWaitingTasks() *waitingTasks {
	return &waitingTasks{
		pending: map[cluster.OwnerRef][]cluster.Pending{}, moves: map[cluster.OwnerRef][]reconciler.Move{},
		noteOwner: func(cluster.OwnerRef) {},
	}
}

// set keeps the pending tasks and the moves of an owner.
func (t *waitingTasks) set(o cluster.OwnerRef, pending []cluster.Pending, moves []reconciler.Move) {
	if len(pending)+len(moves)+len(t.pending[o])+len(t.moves[o]) == 0 {
		return
	}
	t.changed = true
	t.noteOwner(o)
	t.arrivals.learnArrivals(t.pending[o], pending)
	t.drop(o)
	if len(pending) > 0 {
		t.pending[o], t.merged = pending, nil
		t.tasks += cluster.CountTasks(pending)
	}
	if len(moves) > 0 {
		t.moves[o] = moves
	}
}

// drop forgets the tasks of an owner, as some of them were placed. The others found no place on an emptier fleet, so
// this calls for no other placement.
func (t *waitingTasks) drop(o cluster.OwnerRef) {
	if was := t.pending[o]; len(was) > 0 {
		t.noteOwner(o)
		t.merged = nil
		t.tasks -= cluster.CountTasks(was)
	}
	delete(t.pending, o)
	delete(t.moves, o)
}

// takeChanged reports whether the tasks changed since the last call.
func (t *waitingTasks) takeChanged() bool {
	changed := t.changed
	t.changed = false
	return changed
}

// all returns the requests of all owners, and the moves. They are sorted by owner for the same result each time;
// package scheduler/cycle orders them for placement. Callers must not change the requests, nor append to them in place:
// they stay the same until an owner's tasks change.
func (t *waitingTasks) all() (pending []cluster.Pending, moves []*reconciler.Move) {
	if t.merged == nil {
		t.merge()
	}
	for _, o := range sortedOwners(t.moves) {
		for i := range t.moves[o] {
			moves = append(moves, &t.moves[o][i])
		}
	}
	return t.merged, moves
}

// merge makes one list of the lists of the owners, which become parts of it: requests are large, and may be a million.
func (t *waitingTasks) merge() {
	total := 0
	for _, p := range t.pending { // order-free: a sum
		total += len(p)
	}
	t.merged = make([]cluster.Pending, 0, total)
	for _, o := range sortedOwners(t.pending) {
		from := len(t.merged)
		t.merged = append(t.merged, t.pending[o]...)
		t.pending[o] = slices.Clip(t.merged[from:])
	}
}

func sortedOwners[T any](by map[cluster.OwnerRef]T) []cluster.OwnerRef {
	return slices.SortedFunc(maps.Keys(by), cluster.OwnerRef.Compare)
}

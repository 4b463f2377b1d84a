package controlplane

import (
	"maps"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/scheduler/window"
)

// waitingTasks holds what the next placement is to find places for: the pending tasks of each owner, and its tasks that
// should move. It holds the result of the last decision about an owner, as long as nothing of it was placed since. It
// is for one goroutine.
type waitingTasks struct {
	pending map[cluster.OwnerRef][]cluster.Pending
	moves   map[cluster.OwnerRef][]reconciler.Move
	// undecided holds the tasks that were not placed of owners of which others were placed since the last decision. A
	// placement considers them, so that tasks behind them do not take their room, and does not commit their places. Of
	// a long queue these are only tasks with a promise.
	undecided map[cluster.OwnerRef][]cluster.Pending
	// merged is the result of the last call of all, of which the lists of the owners are parts, and nil if they changed
	// since. tasks is the number of pending tasks.
	merged []cluster.Pending
	tasks  int
	// queue holds the requests of jobs, too. A placement considers a window of it while it is long.
	queue *window.Queue
	// updated holds the jobs whose requests changed since the last call of takeUpdated.
	updated map[cluster.OwnerRef]bool
	// arrivals learns from each task that begins to wait.
	arrivals deviceValues
	// changed says that the tasks changed since the last takeChanged.
	changed bool
	// noteOwner learns each owner whose pending tasks changed.
	noteOwner func(cluster.OwnerRef)
}

func newWaitingTasks(sizes window.Sizes) *waitingTasks {
	return &waitingTasks{
		queue: window.New(sizes), updated: map[cluster.OwnerRef]bool{},
		pending: map[cluster.OwnerRef][]cluster.Pending{}, moves: map[cluster.OwnerRef][]reconciler.Move{},
		undecided: map[cluster.OwnerRef][]cluster.Pending{},
		noteOwner: func(cluster.OwnerRef) {},
	}
}

// set keeps the pending tasks and the moves of an owner.
func (t *waitingTasks) set(o cluster.OwnerRef, pending []cluster.Pending, moves []reconciler.Move) {
	delete(t.undecided, o)
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
		if o.Kind == cluster.KindJob {
			t.queue.Set(o, pending)
			t.updated[o] = true
		}
	}
	if len(moves) > 0 {
		t.moves[o] = moves
	}
}

// drop forgets the tasks of an owner.
func (t *waitingTasks) drop(o cluster.OwnerRef) {
	if was := t.pending[o]; len(was) > 0 {
		t.noteOwner(o)
		t.merged = nil
		t.tasks -= cluster.CountTasks(was)
	}
	delete(t.pending, o)
	delete(t.moves, o)
	t.queue.Remove(o)
	delete(t.updated, o)
}

// notePlaced takes note that tasks of an owner were placed. Those of its others that keep chooses stay undecided until
// set is called. They found no place on an emptier fleet, so this calls for no other placement.
func (t *waitingTasks) notePlaced(o cluster.OwnerRef, placed []cluster.TaskID,
	keep func([]cluster.Pending) []cluster.Pending,
) {
	gone := make(map[cluster.TaskID]bool, len(placed))
	for _, task := range placed {
		gone[task] = true
	}
	var left []cluster.Pending
	for _, p := range cluster.Isolate(keep(t.pending[o]), placed) {
		if !gone[p.Task] {
			left = append(left, p)
		}
	}
	t.drop(o)
	if len(left) > 0 {
		t.undecided[o] = left
	}
}

func everyTask(pending []cluster.Pending) []cluster.Pending { return pending }

// withPromise returns a function that keeps the requests of the tasks with a promise, each alone, and those of the
// other members of their gangs.
func withPromise(tasks []window.Task) func([]cluster.Pending) []cluster.Pending {
	promised, isPromised := make([]cluster.TaskID, len(tasks)), make(map[cluster.TaskID]bool, len(tasks))
	for i := range tasks {
		promised[i], isPromised[tasks[i].Task] = tasks[i].Task, true
	}
	return func(pending []cluster.Pending) []cluster.Pending {
		pending = cluster.Isolate(pending, promised)
		gangs := map[string]bool{}
		for i := range pending {
			if p := &pending[i]; isPromised[p.Task] && p.Gang != "" {
				gangs[p.Gang] = true
			}
		}
		var kept []cluster.Pending
		for i := range pending {
			if p := &pending[i]; isPromised[p.Task] || gangs[p.Gang] {
				kept = append(kept, *p)
			}
		}
		return kept
	}
}

// takeUpdated returns the jobs whose requests changed since the last call, or all jobs.
func (t *waitingTasks) takeUpdated(all bool) []cluster.OwnerRef {
	if all {
		for o := range t.pending { // order-free: a set
			if o.Kind == cluster.KindJob {
				t.updated[o] = true
			}
		}
	}
	jobs := sortedOwners(t.updated)
	clear(t.updated)
	return jobs
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
	return t.merged, t.listMoves()
}

// listMoves returns the moves, ordered by owner.
func (t *waitingTasks) listMoves() (moves []*reconciler.Move) {
	for _, o := range sortedOwners(t.moves) {
		for i := range t.moves[o] {
			moves = append(moves, &t.moves[o][i])
		}
	}
	return moves
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
		if o.Kind == cluster.KindJob {
			t.queue.Set(o, t.pending[o])
		}
	}
}

// choose returns the requests that a placement considers, and the moves. Of a long queue, the requests of jobs are
// those of a window, to which the promised tasks belong. Otherwise there is no window, and all requests are returned.
// Undecided tasks are among them, if any other is.
func (t *waitingTasks) choose(now time.Time, promised []window.Task) (
	pending []cluster.Pending, moves []*reconciler.Move, chosen *window.Window,
) {
	pending, moves, chosen = t.chooseDecided(now, promised)
	if len(pending)+len(moves) == 0 || len(t.undecided) == 0 {
		return pending, moves, chosen
	}
	pending = slices.Clip(pending)
	for _, o := range sortedOwners(t.undecided) {
		pending = append(pending, t.undecided[o]...)
	}
	return pending, moves, chosen
}

// chooseDecided does what choose does, without the undecided tasks.
func (t *waitingTasks) chooseDecided(now time.Time, promised []window.Task) (
	pending []cluster.Pending, moves []*reconciler.Move, chosen *window.Window,
) {
	if !t.queue.IsLong() {
		pending, moves = t.all()
		return pending, moves, nil
	}
	t.merged = nil
	chosen = t.queue.Next(now, promised)
	pending = slices.Clip(chosen.Pending)
	services := map[cluster.OwnerRef][]cluster.Pending{}
	for o, p := range t.pending { // order-free: sorted below
		if o.Kind != cluster.KindJob {
			services[o] = p
		}
	}
	for _, o := range sortedOwners(services) {
		pending = append(pending, services[o]...)
	}
	return pending, t.listMoves(), chosen
}

func sortedOwners[T any](by map[cluster.OwnerRef]T) []cluster.OwnerRef {
	return slices.SortedFunc(maps.Keys(by), cluster.OwnerRef.Compare)
}

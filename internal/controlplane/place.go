package controlplane

import (
	"context"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/explain"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/logic/scheduler/window"
	"github.com/berthd/berth/internal/store"
)

// placing is the state of placing tasks.
type placing struct {
	placed int // tasks placed since the last cycle
	// again says that the last placement failed.
	again bool
	// reasons are why tasks wait, by the last placement. While isLong is true, those of jobs are kept in plane.reasons
	// alone, as a placement considers only a window of their queue.
	reasons []cluster.Waiting
	isLong  bool
	// promised holds the tasks that got a promise of room in the last placement, while isLong is true.
	promised []window.Task
	// synchronous says that a cycle waits for its plan records, so that nothing is decided while they are in flight.
	synchronous bool
}

// place schedules all pending tasks and has the placements committed as plan records. It returns their number.
//
// Tasks that should leave their nodes are scheduled too, each as if it waited. A task with a place elsewhere may then
// leave its node, and the next cycle places it.
func (l *loop) place(ctx context.Context, snap *store.Snapshot) (placed int, err error) {
	if !l.term.plans.isInFlight() {
		if err := l.term.settle(ctx); err != nil {
			return 0, err
		}
	}
	if l.external.Places() {
		return l.placeProposed(ctx, snap)
	}
	l.answerDryRuns(snap)
	if !l.takeNeedsPlacement() {
		return 0, nil
	}
	began := l.config.Now()
	pending, moves, chosen := l.waiting.choose(l.clock.now, l.promisedTasks())
	pending = l.preemption.ApplyPromises(slices.Clip(pending))
	waiting := len(pending)
	for _, m := range moves {
		pending = append(pending, m.Next)
	}
	l.plane.valueModel.Store(l.waiting.arrivals.updateFleet(snap, l.view.Fleet))
	result := scheduler.Schedule(l.view.Fleet, pending, l.config.Scheduler)
	defer l.view.LendKept(pending)() // what follows concerns the tasks that keep it
	result, leaving, stays := l.splitMoves(result, moves, waiting)
	l.preemption.Search(l.observed(snap), &result, l.config.Scheduler)
	l.dropUndecided(&result)
	l.noteUnplaced(result.Waiting)
	l.noteReasons(chosen, result.Waiting, stays)
	if err := l.commitMoves(ctx, snap, leaving); err != nil {
		l.placing.again = true
		return 0, err
	}
	if len(result.Placements) == 0 {
		return 0, nil
	}
	l.plane.traces.Record(l.view.Fleet, result.Pending, result.Placements, l.config.Scheduler, l.config.Now())
	if err := l.awaitInFlight(); err != nil { // one plan is in flight at a time
		l.placing.again = true
		return 0, err
	}
	l.commitInBackground(ctx, snap, &result, began)
	if l.placing.synchronous {
		return len(result.Placements), l.awaitInFlight()
	}
	return len(result.Placements), nil
}

// dropUndecided drops the undecided tasks of a result. The reasons for which they waited before remain.
func (l *loop) dropUndecided(r *scheduler.Result) {
	if len(l.waiting.undecided) == 0 {
		return
	}
	r.Placements = slices.DeleteFunc(r.Placements, func(pl scheduler.Placement) bool {
		return l.waiting.undecided[r.Pending[pl.Pending].Owner] != nil
	})
	r.Waiting = slices.DeleteFunc(r.Waiting, func(w cluster.Waiting) bool {
		o, ok := w.Task.Owner()
		return ok && l.waiting.undecided[o] != nil
	})
}

// noteReasons keeps why tasks wait: waiting has those that a placement considered, and stays the tasks that should
// move. chosen is the window of the requests of jobs if their queue is long, else nil.
func (l *loop) noteReasons(chosen *window.Window, waiting, stays []cluster.Waiting) {
	victims, former := l.preemption.ListVictims(), l.undecidedReasons()
	wasLong := l.placing.isLong
	l.placing.isLong, l.placing.promised = chosen != nil, nil
	if chosen == nil {
		if wasLong {
			former = slices.Concat(former, l.plane.reasons.OfJobs(l.isUndecided))
		}
		l.placing.reasons = slices.Concat(waiting, stays, former)
		l.plane.reasons.Set(l.placing.reasons, victims)
		return
	}
	for _, o := range l.waiting.takeUpdated(!wasLong) {
		l.plane.reasons.SetRequests(o, l.waiting.pending[o])
	}
	index := cluster.IndexTasks(cluster.RangesOf(chosen.Pending))
	considered := make([]explain.Considered, len(chosen.Of))
	for i, r := range chosen.Of {
		considered[i] = explain.Considered{Owner: r.Owner, Index: r.Index}
	}
	var others []cluster.Waiting
	for i := range waiting {
		w := &waiting[i]
		number, found := index.Find(w.Task)
		if !found {
			others = append(others, *w)
			continue
		}
		c := &considered[number]
		c.Waiting = append(c.Waiting, *w)
		if w.Promise != nil {
			l.placing.promised = append(l.placing.promised, window.Task{Owner: c.Owner, Task: w.Task})
		}
	}
	l.placing.reasons = slices.Concat(others, stays, former)
	l.plane.reasons.SetConsidered(considered, l.placing.reasons, victims, func(o cluster.OwnerRef) bool {
		return len(l.waiting.pending[o]) > 0 || l.isUndecided(o)
	})
}

// isUndecided reports whether no decision about an owner followed the last placement of its tasks.
func (l *loop) isUndecided(o cluster.OwnerRef) bool {
	return l.queue.IsMarked(o) && len(l.waiting.pending[o])+len(l.waiting.moves[o]) == 0
}

// noteUnplaced counts the tasks that a placement found no node for.
func (l *loop) noteUnplaced(waiting []cluster.Waiting) {
	if m := l.config.Metrics; m != nil && len(waiting) > 0 {
		tasks := len(waiting)
		for i := range waiting {
			tasks += waiting[i].Further
		}
		m.Unplaced(tasks)
	}
}

// undecidedReasons returns the reasons of the last placement for the tasks that this one did not consider, because no
// decision about their owners followed: other tasks of them are in flight, or the owners were deferred. The next
// decision about an owner replaces its reasons.
func (l *loop) undecidedReasons() (kept []cluster.Waiting) {
	if !l.queue.HasMarked(l.isUndecided) {
		return nil
	}
	undecided := map[string]bool{} // by the part of the ids that tasks of an owner share
	for i := range l.placing.reasons {
		w := &l.placing.reasons[i]
		shared, _, _ := w.Task.Cut()
		keep, known := undecided[shared]
		if !known {
			o, ok := w.Task.Owner()
			keep = ok && l.isUndecided(o)
			undecided[shared] = keep
		}
		if keep {
			kept = append(kept, *w)
		}
	}
	return kept
}

// takeNeedsPlacement reports whether a placement may have another result than the last one.
func (l *loop) takeNeedsPlacement() bool {
	changes := l.placing.again
	l.placing.again = false
	// Each of them forgets its change.
	for _, changed := range []bool{l.waiting.takeChanged(), l.view.TakeChanged(), l.preemption.TakeChanged()} {
		changes = changes || changed
	}
	if changes {
		l.waiting.queue.Restart()
	}
	return changes || l.waiting.queue.HasTurns() || l.preemption.IsSearchDue()
}

// commitInBackground charges the placements of a result to the fleet and has them committed. No other plan may be in
// flight. It returns the identities of the attempts.
func (l *loop) commitInBackground(ctx context.Context, snap *store.Snapshot, result *scheduler.Result, began time.Time,
) (ids []string) {
	pending, placements := result.Pending, result.Placements
	owners, placed := map[cluster.OwnerRef]bool{}, map[cluster.OwnerRef][]cluster.TaskID{}
	ids = make([]string, len(placements))
	for i := range placements {
		pl, id := &placements[i], l.config.NewID()
		p := &pending[pl.Pending]
		ids[i], owners[p.Owner] = id, true
		placed[p.Owner] = append(placed[p.Owner], pl.Task)
		l.view.ChargePlacement(pl, p, id)
	}
	domain, _ := snap.Domain(l.config.Domain)
	batches := l.term.plans.makePlanBatches(snap, pending, placements, ids, domain.Value.ProjectsAtOnce())
	for i := range batches {
		batches[i].Requires = l.external.Requires()
	}
	keep := everyTask
	if l.placing.isLong {
		keep = withPromise(l.promisedTasks())
	}
	for o := range owners { // order-free: each by itself
		l.view.Policy(snap, o) // the reservations depend on them
		l.queue.Mark(o)        // its pending tasks are found again before anything of it is placed again
		l.waiting.notePlaced(o, placed[o], keep)
	}
	l.term.plans.begin(ctx, snap, owners, batches, began)
	return ids
}

// promisedTasks returns the tasks with a promise of room: of a long queue those by the last placement, and those for
// which others end.
func (l *loop) promisedTasks() []window.Task {
	return slices.Concat(l.placing.promised, l.preemption.PromisedTasks())
}

// awaitInFlight waits for the plan in flight, if there is one, and takes its result.
func (l *loop) awaitInFlight() error {
	plan := l.term.plans.wait()
	if plan == nil {
		return nil
	}
	l.term.noteWritten(plan.revision)
	l.placing.placed += plan.placed
	if m := l.config.Metrics; m != nil && plan.refused > 0 {
		m.PlacementsRefused(plan.refused)
	}
	l.view.Rechecks.AddNodes(plan.checked)
	if plan.err != nil {
		l.placing.again = true
	}
	return plan.err
}

// collectInFlight takes the result of the plan in flight if it has arrived. It does not wait.
func (l *loop) collectInFlight() error {
	select {
	case <-l.term.plans.done():
		return l.awaitInFlight()
	default:
		return nil
	}
}

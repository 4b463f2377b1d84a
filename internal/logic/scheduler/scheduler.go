// Package scheduler decides where waiting tasks run. It is a function of values:
//
//	Schedule(fleet, pending, options) → placements, and a reason for every task that waits
//
// A Fleet holds the nodes and the reservations of tasks on them. The control plane owns it and updates it from cycle to
// cycle. It calls SetNode and RemoveNode as nodes join, change and leave. It calls Reserve when a placement is
// committed, and Release once nothing of the attempt is left on its node. Schedule only reads the fleet: it charges the
// placements of a cycle to a copy that ends with the cycle.
//
// Every task is offered every node; none is sampled. A node refuses a task for the first of these reasons:
//
//   - the task is restricted to another node
//   - the node is not ready
//   - the node is drained, or it is cordoned and the task belongs to no daemon
//   - the node is in another pool
//   - a reservation keeps the node for others, and the task belongs to no daemon
//   - the task does not tolerate a taint
//   - the node has no executor for the task, or not its network
//   - a constraint is not met
//   - an earlier attempt of the task still is on the node (P3.6)
//   - anti-affinity is required, and a task of the same group runs there
//   - a distinct, a spread or a relation is not met
//   - CPU, memory or disk are short
//   - devices are not free
//   - a port is taken, or no port is left to assign
//
// Schedule takes the best feasible node: package rank defines the order.
//
// The answer depends on the set of pending tasks and on the fleet. It never depends on the order in which either was
// put together.
//
// # Packages
//
// The packages below this one are its parts, the lower ones first:
//
//   - encode: keys of maps
//   - index: nodes in the order of their names, and trees of nodes
//   - devices: the choice of devices on a node, and their value
//   - fleet: nodes, reservations and their indexes; the overlay of a cycle
//   - feasibility: what a node alone decides
//   - rank: the order of feasible nodes
//   - taskclass: tasks with equal requests, and what they ask of the tasks around them
//   - evaluation: one node's answer to one task class
//   - cycle: the best node for a task, and its placement
//   - fair: the turns of requests in fair queues
//   - preemption: which tasks end for others
//   - window: the tasks of a long queue that one placement considers
//
// Of the files here, waiting.go says why a task waits, explain.go and blockers.go give the answer of each node, and
// sentence.go holds the sentences of the reasons.
package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/cycle"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// Result is what a cycle decided. Each pending task is in one of the two lists. Both lists are in the order of
// decision: by priority, then the longer wait, then the task id. The members of a gang follow its first member. Tasks
// that only fit after others were placed come last: a spread's maximum skew or a relation delayed them.
type Result struct {
	Placements []cycle.Placement
	// Pending are the requests to which the placements refer: those given, and one for each further task of them that
	// was placed.
	Pending []cluster.Pending
	// Waiting tasks may share one slice of refusals: callers must not change it.
	Waiting []cluster.Waiting
}

// Schedule places the pending tasks, the most urgent first, and gives a reason for each task that waits. A task that
// has priority 0 or a hold is held. Refusals describe the fleet after the cycle's placements. Schedule
// does not change the fleet, and may run concurrently with other readers of it. Task ids must be unique among the
// pending tasks.
func Schedule(f *fleet.Fleet, pending []cluster.Pending, opts taskclass.Options) Result {
	order, held := cycle.Order(pending, opts.Now)
	y := newPlacer(f, pending, opts)
	y.placed = make([]cycle.Placement, 0, len(order))
	y.Start(order) // 1. group equal requests

	turns := make([]int32, len(order)) // 2. place the tasks in order
	for i := range turns {
		turns[i] = int32(i)
	}
	y.promises.takeKept(turns)
	waiting := y.run(turns)
	// Placed tasks may have made room for waiting tasks with relations or spreads: try these again.
	for again := y.revived(waiting); len(again) > 0; again = y.revived(waiting) {
		before := len(y.placed)
		left := y.run(again)
		if len(y.placed) == before {
			break
		}
		waiting = without(waiting, again, left)
	}

	res := Result{Placements: y.placed, Pending: y.Classes.Given()}
	y.backfill.release()
	for _, i := range waiting { // 3. explain why the others wait
		w, found := y.gangWaiting[i]
		if !found {
			w, found = y.limitWaiting(i)
		}
		if !found {
			own := y.promises.rooms[i]
			y.promises.charge(own, -1) // a task's own promise must not count against it
			w = y.explain(y.Classes.At[i], y.Classes.Task(i).Task)
			y.promises.charge(own, 1)
		}
		res.addWaiting(w, y.Classes.Task(i), y.backfill.promises[i])
	}
	for _, p := range held {
		res.addWaiting(heldWaiting(&pending[p]), &pending[p], nil)
	}
	return res
}

// addWaiting adds why the tasks of a request wait. A promise is for its first task.
func (r *Result) addWaiting(w cluster.Waiting, p *cluster.Pending, promise *cluster.Promise) {
	w.Further = p.Further
	if promise == nil {
		r.Waiting = append(r.Waiting, w)
		return
	}
	first := w
	first.Further, first.Promise, first.Sentence = 0, promise, w.Sentence+"; "+promiseText(promise)
	r.Waiting = append(r.Waiting, first)
	if w.Further > 0 {
		w.Task, w.Further = w.Task.Offset(1), w.Further-1
		r.Waiting = append(r.Waiting, w)
	}
}

// without returns waiting less the positions that are in again but not in left. All three are in ascending order; again
// is a subset of waiting, and left a subset of again.
func without(waiting, again, left []int32) []int32 {
	return slices.DeleteFunc(waiting, func(i int32) bool {
		if len(again) == 0 || again[0] != i {
			return false
		}
		again = again[1:]
		if len(left) > 0 && left[0] == i {
			left = left[1:]
			return false
		}
		return true
	})
}

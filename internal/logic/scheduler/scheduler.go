// Package scheduler decides where waiting tasks run. It is a function of values:
//
//	Schedule(fleet, pending, options) → placements, and a reason for every task that waits
//
// A Fleet is what the nodes have and what tasks have reserved of it. Its owner, the
// control plane, keeps it from cycle to cycle by differences: SetNode and RemoveNode as nodes
// come, change and go; Reserve when a placement is committed and Release once
// nothing of the attempt is left on its node. Schedule only reads it: what a cycle places is
// charged to a copy of the figures that ends with the cycle.
//
// Every task is offered every node; none is sampled. A node refuses a task for the first of these that holds, in this
// order: the task is for another one, it is not ready, it is cordoned (which keeps no daemon away) or drained, it is of
// another pool, a reservation keeps it for others (not from daemons), it has a taint that the task does not tolerate,
// it has no executor for the task, a constraint is not met, an earlier attempt of the task still stands there (P3.6), a
// task of the same group runs there that must be kept apart, enough of the group share a value of the node, the spread
// would be too uneven, a demand on the nearness of other workloads is not met, CPU, memory or disk are short, devices
// are not free, a port is taken, or no port is left to assign. Of the nodes that do not refuse, the best is taken: see
// rank.go for what is best.
//
// The answer depends on the set of pending tasks and on the fleet, never on the order in
// which either was put together.
package scheduler

import (
	"cmp"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Options tune a cycle. The zero value is ready to use.
type Options struct {
	// Services and Jobs are the strategies of tasks whose owner names none. Default whole for tasks that ask for
	// devices, and of the others spread for services and binpack for jobs.
	Services, Jobs cluster.Strategy

	// Now is the time by which reservations begin and end. With the zero time none has begun.
	Now time.Time

	// ranking, unless 0, says for tests which way to the best node every class goes: through a ranking above 0, through
	// the trees below.
	ranking int
}

// Placement is a task with the node that it should run on.
type Placement struct {
	// Pending is the task's index in the slice that was given to Schedule.
	Pending int
	Task    cluster.TaskID
	Node    string
	// Ports maps each of the task's ports to its number on the node; nil for a task without ports.
	Ports map[string]int
	// Devices are what it holds of the node's, ordered by their IDs; nil for a task that asks for none.
	Devices []cluster.DeviceUse
}

// Reservation returns what the placement of p takes up on its node, for Fleet.Reserve. The
// committer gives the UUID.
func (pl *Placement) Reservation(p *cluster.Pending, uuid string) Reservation {
	r := Reservation{
		UUID: uuid, Task: pl.Task, Definition: p.Definition, Node: pl.Node, Demand: p.Demand,
		Labels: p.Labels, Priority: p.Priority, Devices: pl.Devices, Away: awayOf(&p.Placement),
	}
	for _, port := range p.Ports {
		r.Ports = append(r.Ports, pl.Ports[port.Name])
	}
	return r
}

// Result is what a cycle decided. Each pending task is in one of the two lists, which are both in the order of the
// decisions: by priority, then the longer wait, then the task id, and the members of a gang behind its first. Tasks
// that only fit since others were placed, because of a spread's greatest skew or as they want to be near them, come
// last.
type Result struct {
	Placements []Placement
	// Waiting tasks may share one slice of refusals: it is to be read only.
	Waiting []cluster.Waiting
}

// Schedule places the pending tasks, the most urgent first, and says for each other one why it
// waits. A task of priority 0, or that lacks something, is held. Refusals speak of the fleet as it is after the cycle's
// placements. The fleet is not changed; Schedule may run concurrently with other readers of it. Task ids must be
// unique among the pending.
func Schedule(f *Fleet, pending []cluster.Pending, opts Options) Result {
	order, held := queue(pending)
	y := newCycle(f, pending, opts)
	y.order, y.placed = order, make([]Placement, 0, len(order))
	y.classify(order) // 1. group tasks that ask for the same
	y.relate()

	turns := make([]int32, len(order)) // 2. place one after the other
	for i := range turns {
		turns[i] = int32(i)
	}
	waiting := y.run(turns)
	// … and again, as long as others make it possible
	for again := y.revived(waiting); len(again) > 0; again = y.revived(waiting) {
		before := len(y.placed)
		left := y.run(again)
		if len(y.placed) == before {
			break
		}
		waiting = without(waiting, again, left)
	}

	res := Result{Placements: y.placed}
	for _, i := range waiting { // 3. tell the others why
		w, found := y.told[i]
		if !found {
			y.keepAgain(y.kept[i], -1) // it does not keep itself away
			w = y.explain(y.classOf[i], y.task(i).Task)
			y.keepAgain(y.kept[i], 1)
		}
		res.Waiting = append(res.Waiting, w)
	}
	for _, p := range held {
		if pending[p].Lacks != "" {
			res.Waiting = append(res.Waiting, lack(&pending[p]))
			continue
		}
		res.Waiting = append(res.Waiting, hold(pending[p].Task))
	}
	return res
}

// without removes from waiting the positions that are in again and not in left. All three are in ascending order, and
// again is a part of waiting, left one of again.
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

// queue returns the indices of the pending tasks in the order in which they are placed, and of
// those that are held.
func queue(pending []cluster.Pending) (order, held []int32) {
	order = make([]int32, 0, len(pending))
	for i := range pending {
		if pending[i].Priority > 0 && pending[i].Lacks == "" {
			order = append(order, int32(i))
		} else {
			held = append(held, int32(i))
		}
	}
	urgency := func(i, j int32) int {
		a, b := &pending[i], &pending[j]
		if a.Priority != b.Priority {
			return cmp.Compare(b.Priority, a.Priority)
		}
		if c := a.Since.Compare(b.Since); c != 0 {
			return c
		}
		return cmp.Compare(a.Task, b.Task)
	}
	slices.SortFunc(order, urgency)
	slices.SortFunc(held, urgency)
	return together(pending, order), held
}

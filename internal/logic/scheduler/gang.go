package scheduler

import (
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// groupGangs moves the members of each gang behind its first member: they are placed together or not at all.
func groupGangs(pending []cluster.Pending, order []int32) []int32 {
	members := map[string][]int32{}
	for _, p := range order {
		if gang := pending[p].Gang; gang != "" {
			members[gang] = append(members[gang], p)
		}
	}
	if len(members) == 0 {
		return order
	}
	sorted := make([]int32, 0, len(order))
	for _, p := range order {
		if gang := pending[p].Gang; gang == "" {
			sorted = append(sorted, p)
		} else {
			sorted = append(sorted, members[gang]...)
			members[gang] = nil
		}
	}
	return sorted
}

// run gives tasks their turns, by position in the order of decision. It returns the tasks that wait.
func (y *cycle) run(positions []int32) (waiting []int32) {
	for len(positions) > 0 {
		gang := y.task(positions[0]).Gang
		members := 1
		for gang != "" && members < len(positions) && y.task(positions[members]).Gang == gang {
			members++
		}
		before := len(waiting)
		y.releasePromised(positions[:members]...)
		if gang == "" {
			if !y.turn(positions[0]) {
				waiting = append(waiting, positions[0])
			}
		} else {
			waiting = append(waiting, y.runGang(positions[:members])...)
		}
		y.reservePromised(waiting[before:])
		positions = positions[members:]
	}
	return waiting
}

// turn places the task at a position, if a node is feasible.
func (y *cycle) turn(position int32) bool {
	c := y.taskClassAt[position]
	slot := y.promised(c)
	if slot < 0 {
		slot = y.best(c)
	}
	if slot >= 0 {
		y.placed = append(y.placed, y.place(c, slot, int(y.order[position])))
		y.placedAt = append(y.placedAt, placedTask{position, slot})
	}
	y.finishTask(c)
	return slot >= 0
}

// placedTask is the position of a placed task, and its node.
type placedTask struct{ position, slot int32 }

func (y *cycle) task(position int32) *cluster.Pending { return &y.pending[y.order[position]] }

// runGang places the members of a gang: at least the gang's size of them, or none.
func (y *cycle) runGang(members []int32) (waiting []int32) {
	size := 0
	for _, m := range members {
		size = max(size, y.task(m).GangSize)
		y.prepare(y.taskClassAt[m])
	}
	if len(members) < size {
		y.noteGangWaiting(members, fmt.Sprintf("%d of %d tasks wait for places", len(members), size), nil)
		return members
	}
	mark := len(y.placed)
	for _, m := range members {
		if !y.turn(m) {
			waiting = append(waiting, m)
		}
	}
	if placed := len(members) - len(waiting); placed < size {
		var others []cluster.RefusalCount
		y.prepare(y.taskClassAt[waiting[0]])
		others = y.findRefusals(y.taskClassAt[waiting[0]])
		slices.SortFunc(others, byNodeCount)
		for i := len(y.placed) - 1; i >= mark; i-- {
			y.giveBack(&y.placed[i], y.placedAt[i])
		}
		y.placed, y.placedAt = y.placed[:mark], y.placedAt[:mark]
		y.noteGangWaiting(members, fmt.Sprintf("%d of %d tasks find places", placed, size), others)
		return members
	}
	for _, m := range waiting {
		delete(y.gangWaiting, m)
	}
	return waiting
}

// noteGangWaiting keeps why the members of a gang wait: the state of the gang, and the refusals of the first member
// without a place.
func (y *cycle) noteGangWaiting(members []int32, gang string, others []cluster.RefusalCount) {
	refusals := append([]cluster.RefusalCount{{Refusal: cluster.Refusal{Code: cluster.ReasonGang, Detail: gang}}},
		others...)
	sentence := Sentence(refusals)
	if y.gangWaiting == nil {
		y.gangWaiting = map[int32]cluster.Waiting{}
	}
	for _, m := range members {
		y.gangWaiting[m] = cluster.Waiting{Task: y.task(m).Task, Refusals: refusals, Sentence: sentence}
	}
}

// giveBack undoes place. Cached refusals become invalid.
func (y *cycle) giveBack(pl *Placement, at placedTask) {
	c, l := y.taskClassAt[at.position], y.ownLoad(at.slot)
	l.used = l.used.Sub(c.demand)
	l.tasks--
	y.countTask(c, at.slot, -1)
	for _, port := range pl.Ports { // order-free: each for itself
		y.ownPorts(at.slot).remove(port)
	}
	if len(pl.Devices) > 0 {
		y.useDevices(at.slot, pl.Devices, -1)
	}
	y.touch(l, at.slot)
	y.undoCount++
}

// forgetStale drops what is no longer valid because something was given back.
func (y *cycle) forgetStale(c *taskClass) {
	if c.undoCount == y.undoCount {
		return
	}
	c.undoCount, c.isFull, c.minGroupTasks, c.candidateHeaps = y.undoCount, false, nil, nil
	if c.ranking != nil {
		y.spareRank = append(y.spareRank, c.ranking)
		c.ranking, c.visited = nil, false
	}
}

// revived returns the waiting tasks that others may have made feasible since, with all of their gangs. If room is kept
// for waiting tasks, it returns all of them and releases that room. A revived task must not wait for room that is kept
// for a less urgent one. Room of a task that now finds another place is free for the others.
func (y *cycle) revived(waiting []int32) (again []int32) {
	gangs := map[string]bool{}
	for _, i := range waiting {
		if gang := y.task(i).Gang; gang != "" && y.taskClassAt[i].revives {
			gangs[gang] = true
		}
	}
	for _, i := range waiting {
		if y.taskClassAt[i].revives || gangs[y.task(i).Gang] {
			again = append(again, i)
		}
	}
	if len(again) > 0 && len(y.promisedRooms) > 0 {
		y.releasePromised(waiting...)
		return slices.Clone(waiting)
	}
	return again
}

package scheduler

import (
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// together moves the members of each gang behind the first of them, as they are placed together or not at all.
func together(pending []cluster.Pending, order []int32) []int32 {
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

// run gives tasks, by their position in the order of decisions, their turns, and returns those that wait.
func (y *cycle) run(positions []int32) (waiting []int32) {
	for len(positions) > 0 {
		gang := y.task(positions[0]).Gang
		members := 1
		for gang != "" && members < len(positions) && y.task(positions[members]).Gang == gang {
			members++
		}
		before := len(waiting)
		y.unkeep(positions[:members]...)
		if gang == "" {
			if !y.turn(positions[0]) {
				waiting = append(waiting, positions[0])
			}
		} else {
			waiting = append(waiting, y.runGang(positions[:members])...)
		}
		y.keepFor(waiting[before:])
		positions = positions[members:]
	}
	return waiting
}

// turn places the task at a position in the order of decisions, if it can.
func (y *cycle) turn(position int32) bool {
	c := y.classOf[position]
	slot := y.promised(c)
	if slot < 0 {
		slot = y.best(c)
	}
	if slot >= 0 {
		y.placed = append(y.placed, y.place(c, slot, int(y.order[position])))
		y.placedAt = append(y.placedAt, whereabouts{position, slot})
	}
	y.leave(c)
	return slot >= 0
}

// whereabouts is the position of a placed task and its node.
type whereabouts struct{ position, slot int32 }

func (y *cycle) task(position int32) *cluster.Pending { return &y.pending[y.order[position]] }

// runGang places the members of a gang, at least as many as it has to have, or none: what they took is given back then.
func (y *cycle) runGang(members []int32) (waiting []int32) {
	size := 0
	for _, m := range members {
		size = max(size, y.task(m).GangSize)
		y.ready(y.classOf[m])
	}
	if len(members) < size {
		y.tell(members, fmt.Sprintf("%d of %d tasks wait for places", len(members), size), nil)
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
		y.ready(y.classOf[waiting[0]])
		others = y.findRefusals(y.classOf[waiting[0]])
		slices.SortFunc(others, mostNodes)
		for i := len(y.placed) - 1; i >= mark; i-- {
			y.giveBack(&y.placed[i], y.placedAt[i])
		}
		y.placed, y.placedAt = y.placed[:mark], y.placedAt[:mark]
		y.tell(members, fmt.Sprintf("%d of %d tasks find places", placed, size), others)
		return members
	}
	for _, m := range waiting {
		delete(y.told, m)
	}
	return waiting
}

// tell keeps why the members of a gang wait: for the gang, and for what the first of those that found no place was
// told.
func (y *cycle) tell(members []int32, gang string, others []cluster.RefusalCount) {
	refusals := append([]cluster.RefusalCount{{Refusal: cluster.Refusal{Code: cluster.ReasonGang, Detail: gang}}},
		others...)
	sentence := Sentence(refusals)
	if y.told == nil {
		y.told = map[int32]cluster.Waiting{}
	}
	for _, m := range members {
		y.told[m] = cluster.Waiting{Task: y.task(m).Task, Refusals: refusals, Sentence: sentence}
	}
}

// giveBack undoes place. What was found out of nodes that refuse holds no longer.
func (y *cycle) giveBack(pl *Placement, at whereabouts) {
	c, l := y.classOf[at.position], y.ownLoad(at.slot)
	l.used = l.used.Sub(c.demand)
	l.tasks--
	y.count1(c, at.slot, -1)
	for _, port := range pl.Ports { // order-free: each for itself
		y.ownPorts(at.slot).remove(port)
	}
	if len(pl.Devices) > 0 {
		y.useDevices(at.slot, pl.Devices, -1)
	}
	y.touch(l, at.slot)
	y.epoch++
}

// renew forgets what no longer holds since something was given back.
func (y *cycle) renew(c *class) {
	if c.epoch == y.epoch {
		return
	}
	c.epoch, c.full, c.floors, c.rosters = y.epoch, false, nil, nil
	if c.ranking != nil {
		y.spareRank = append(y.spareRank, c.ranking)
		c.ranking, c.visited = nil, false
	}
}

// revived returns those of the waiting tasks whose demands others may have met since, with all of their gangs. Where
// room is kept for some that wait, it returns all and gives that room back: a task that is revived must not wait for
// what is kept for a less urgent one, and what was kept for one that now finds another place is free for the rest.
func (y *cycle) revived(waiting []int32) (again []int32) {
	gangs := map[string]bool{}
	for _, i := range waiting {
		if gang := y.task(i).Gang; gang != "" && y.classOf[i].revives {
			gangs[gang] = true
		}
	}
	for _, i := range waiting {
		if y.classOf[i].revives || gangs[y.task(i).Gang] {
			again = append(again, i)
		}
	}
	if len(again) > 0 && len(y.kept) > 0 {
		y.unkeep(waiting...)
		return slices.Clone(waiting)
	}
	return again
}

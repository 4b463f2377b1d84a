package fleet

import (
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// ReservedGroups counts the reservations of a fleet by anti-affinity group. A group that becomes empty is removed.
type ReservedGroups struct {
	byTasks map[string]*ReservedGroup // by the name that TasksOf returns; further definitions are chained
	spare   []*ReservedGroup          // empty groups for reuse
}

func newReservedGroups() ReservedGroups { return ReservedGroups{byTasks: map[string]*ReservedGroup{}} }

// Of returns the group of some tasks with a definition, or nil.
func (x *ReservedGroups) Of(tasks string, definition cluster.Ref) *ReservedGroup {
	return x.byTasks[tasks].of(definition)
}

// add counts a reservation on a node.
func (x *ReservedGroups) add(r *Reservation, slot int32) {
	tasks, generation, definition := TasksOf(r.Task, r.Definition)
	first := x.byTasks[tasks]
	c := first.of(definition)
	if c == nil {
		c = x.newGroup(definition, first)
		x.byTasks[tasks] = c
	}
	c.add(SlotGenerationOf(slot, generation))
}

// remove uncounts a reservation on a node.
func (x *ReservedGroups) remove(r *Reservation, slot int32) {
	tasks, generation, definition := TasksOf(r.Task, r.Definition)
	c := x.byTasks[tasks].of(definition)
	if c.remove(SlotGenerationOf(slot, generation)); len(c.Counts) == 0 {
		x.removeGroup(tasks, c)
	}
}

// clone returns an independent copy.
func (x *ReservedGroups) clone() ReservedGroups {
	c := ReservedGroups{byTasks: make(map[string]*ReservedGroup, len(x.byTasks))}
	for tasks, first := range x.byTasks { // order-free: a copy
		for o := first; o != nil; o = o.next {
			c.byTasks[tasks] = &ReservedGroup{
				o.definition, maps.Clone(o.Counts), slices.Clone(o.Generations), c.byTasks[tasks],
			}
		}
	}
	return c
}

// newGroup returns an empty group.
func (x *ReservedGroups) newGroup(definition cluster.Ref, next *ReservedGroup) *ReservedGroup {
	last := len(x.spare) - 1
	if last < 0 {
		return &ReservedGroup{definition, map[SlotGeneration]int32{}, nil, next}
	}
	c := x.spare[last]
	x.spare = x.spare[:last]
	c.definition, c.next = definition, next
	return c
}

// maxSpareGroups limits the groups kept for reuse: their maps never shrink.
const maxSpareGroups = 16

// removeGroup removes a group that has become empty.
func (x *ReservedGroups) removeGroup(tasks string, c *ReservedGroup) {
	first := x.byTasks[tasks]
	switch {
	case first != c:
		for first.next != c {
			first = first.next
		}
		first.next = c.next
	case c.next != nil:
		x.byTasks[tasks] = c.next
	default:
		delete(x.byTasks, tasks)
	}
	if len(x.spare) < maxSpareGroups {
		x.spare = append(x.spare, c)
	}
}

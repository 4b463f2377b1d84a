package scheduler

import (
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// reservedGroups counts the reservations of a fleet by anti-affinity group. A group that becomes empty is removed.
type reservedGroups struct {
	byTasks map[string]*reservedGroup // by the name that tasksOf returns; further definitions are chained
	spare   []*reservedGroup          // empty groups for reuse
}

func newReservedGroups() reservedGroups { return reservedGroups{byTasks: map[string]*reservedGroup{}} }

// of returns the group of some tasks with a definition, or nil.
func (x *reservedGroups) of(tasks string, definition cluster.Ref) *reservedGroup {
	return x.byTasks[tasks].of(definition)
}

// add counts a reservation on a node.
func (x *reservedGroups) add(r *Reservation, slot int32) {
	tasks, generation, definition := tasksOf(r.Task, r.Definition)
	first := x.byTasks[tasks]
	c := first.of(definition)
	if c == nil {
		c = x.newGroup(definition, first)
		x.byTasks[tasks] = c
	}
	c.add(slotGenerationOf(slot, generation))
}

// remove uncounts a reservation on a node.
func (x *reservedGroups) remove(r *Reservation, slot int32) {
	tasks, generation, definition := tasksOf(r.Task, r.Definition)
	c := x.byTasks[tasks].of(definition)
	if c.remove(slotGenerationOf(slot, generation)); len(c.counts) == 0 {
		x.removeGroup(tasks, c)
	}
}

// clone returns an independent copy.
func (x *reservedGroups) clone() reservedGroups {
	c := reservedGroups{byTasks: make(map[string]*reservedGroup, len(x.byTasks))}
	for tasks, first := range x.byTasks { // order-free: a copy
		for o := first; o != nil; o = o.next {
			c.byTasks[tasks] = &reservedGroup{
				o.definition, maps.Clone(o.counts), slices.Clone(o.generations), c.byTasks[tasks],
			}
		}
	}
	return c
}

// newGroup returns an empty group.
func (x *reservedGroups) newGroup(definition cluster.Ref, next *reservedGroup) *reservedGroup {
	last := len(x.spare) - 1
	if last < 0 {
		return &reservedGroup{definition, map[slotGeneration]int32{}, nil, next}
	}
	c := x.spare[last]
	x.spare = x.spare[:last]
	c.definition, c.next = definition, next
	return c
}

// maxSpareGroups limits the groups kept for reuse: their maps never shrink.
const maxSpareGroups = 16

// removeGroup removes a group that has become empty.
func (x *reservedGroups) removeGroup(tasks string, c *reservedGroup) {
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

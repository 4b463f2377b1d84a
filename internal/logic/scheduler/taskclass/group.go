package taskclass

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
)

// Group is an anti-affinity group: pending tasks that count each other.
type Group struct {
	Next        *Group // the same owner with another version
	classes     []*Class
	IsCounted   bool             // a class of it needs the counts
	Views       map[string]*View // by attribute
	hasReserved bool             // findReserved ran
	// SameDefinition and NoDefinition are the fleet's reservations to be counted: those of CountedGenerations, and
	// those whose definition is unknown. Either may be nil.
	SameDefinition     *fleet.ReservedGroup
	NoDefinition       *fleet.ReservedGroup
	CountedGenerations []uint64
	Placed             map[int32]int32 // by slot, in this cycle; nil if none
	counts             []int32         // by slot, of all tasks; nil unless a ranking needs them
	Left               int             // undecided tasks
	hasDemand          bool            // a class of it requires anti-affinity
}

// TasksOn returns the number of the group's tasks on a node, reserved and placed.
func (g *Group) TasksOn(slot int32) (tasks int32) {
	if g.counts != nil {
		return g.counts[slot]
	}
	if g.SameDefinition != nil {
		for _, generation := range g.CountedGenerations {
			tasks += g.SameDefinition.Counts[fleet.SlotGenerationOf(slot, generation)]
		}
	}
	if g.NoDefinition != nil {
		tasks += g.NoDefinition.Counts[fleet.SlotGenerationOf(slot, 0)]
	}
	if g.Placed != nil {
		tasks += g.Placed[slot]
	}
	return tasks
}

// MaxNodes returns an upper bound of the number of nodes with tasks of the group.
func (g *Group) MaxNodes() int {
	size := len(g.Placed)
	if g.SameDefinition != nil {
		size += len(g.SameDefinition.Counts)
	}
	if g.NoDefinition != nil {
		size += len(g.NoDefinition.Counts)
	}
	return size
}

// Nodes yields each node with tasks of the group, some more than once, in no order.
func (g *Group) Nodes(yield func(slot int32) bool) {
	for _, c := range []*fleet.ReservedGroup{g.SameDefinition, g.NoDefinition} {
		if c == nil {
			continue
		}
		for at := range c.Counts { // order-free: the caller takes the best
			if !yield(at.Slot()) {
				return
			}
		}
	}
	for slot := range g.Placed { // order-free: as above
		if !yield(slot) {
			return
		}
	}
}

// sameVersion reports whether two tasks count for each other's anti-affinity. They belong to one step, or to one
// service and definition, on the same side of the last restart.
func sameVersion(a, b *cluster.Pending) bool {
	if a.Definition != b.Definition || a.Restarted != b.Restarted {
		return false
	}
	if same := fleet.WithoutIndex(a.Task) == fleet.WithoutIndex(b.Task); same || a.Definition.Name == "" {
		return same
	}
	tasks, generation, _ := fleet.TasksOf(a.Task, a.Definition)
	others, other, _ := fleet.TasksOf(b.Task, b.Definition)
	return tasks == others && (generation >= a.Restarted) == (other >= a.Restarted)
}

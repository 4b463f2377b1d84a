package scheduler

import "github.com/berthd/berth/internal/cluster"

// group is an anti-affinity group: pending tasks that count each other.
type group struct {
	next        *group // the same owner with another version
	classes     []*taskClass
	isCounted   bool             // a class of it needs the counts
	views       map[string]*view // by attribute
	hasReserved bool             // findReserved ran
	// sameDefinition and noDefinition are the fleet's reservations to be counted: those of countedGenerations, and
	// those whose definition is unknown. Either may be nil.
	sameDefinition     *reservedGroup
	noDefinition       *reservedGroup
	countedGenerations []uint64
	placed             map[int32]int32 // by slot, in this cycle; nil if none
	counts             []int32         // by slot, of all tasks; nil unless a ranking needs them
	left               int             // undecided tasks
	hasDemand          bool            // a class of it requires anti-affinity
}

// tasksOn returns the number of the group's tasks on a node, reserved and placed.
func (g *group) tasksOn(slot int32) (tasks int32) {
	if g.counts != nil {
		return g.counts[slot]
	}
	if g.sameDefinition != nil {
		for _, generation := range g.countedGenerations {
			tasks += g.sameDefinition.counts[slotGenerationOf(slot, generation)]
		}
	}
	if g.noDefinition != nil {
		tasks += g.noDefinition.counts[slotGenerationOf(slot, 0)]
	}
	if g.placed != nil {
		tasks += g.placed[slot]
	}
	return tasks
}

// maxNodes returns an upper bound of the number of nodes with tasks of the group.
func (g *group) maxNodes() int {
	size := len(g.placed)
	if g.sameDefinition != nil {
		size += len(g.sameDefinition.counts)
	}
	if g.noDefinition != nil {
		size += len(g.noDefinition.counts)
	}
	return size
}

// nodes yields each node with tasks of the group, some more than once, in no order.
func (g *group) nodes(yield func(slot int32) bool) {
	for _, c := range []*reservedGroup{g.sameDefinition, g.noDefinition} {
		if c == nil {
			continue
		}
		for at := range c.counts { // order-free: the caller takes the best
			if !yield(at.slot()) {
				return
			}
		}
	}
	for slot := range g.placed { // order-free: as above
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
	if same := withoutIndex(a.Task) == withoutIndex(b.Task); same || a.Definition.Name == "" {
		return same
	}
	tasks, generation, _ := tasksOf(a.Task, a.Definition)
	others, other, _ := tasksOf(b.Task, b.Definition)
	return tasks == others && (generation >= a.Restarted) == (other >= a.Restarted)
}

package scheduler

import "cmp"

// evaluator answers for one task class and one node: whether the node refuses the task now, and else its rank. It reads
// the overlay and changes nothing that others see. The class must be prepared.
type evaluator struct {
	nodes     *overlay
	fits      *fitCache
	allocator allocator
	// valuedNodeClasses says, by node class, whether it has devices that the value model knows; nil until first used.
	valuedNodeClasses []bool
}

func newEvaluator(nodes *overlay, fits *fitCache) evaluator {
	return evaluator{nodes: nodes, fits: fits, allocator: allocator{model: nodes.fleet.DeviceValueModel()}}
}

// judge returns the better of best and the node, if the node is feasible.
func (e *evaluator) judge(c *taskClass, slot int32, best rankedNode) rankedNode {
	if !e.isFeasible(c, slot) {
		return best
	}
	return e.better(best, rankedNode{rank: e.rankOf(c, slot), slot: slot})
}

// better returns the node that ranks first; a slot of -1 means none.
func (e *evaluator) better(a, b rankedNode) rankedNode {
	switch {
	case a.slot < 0:
		return b
	case b.slot < 0:
		return a
	case a.rank == b.rank:
		if cmp.Less(e.nodes.fleet.names.order[b.slot], e.nodes.fleet.names.order[a.slot]) {
			return b
		}
		return a
	case b.rank.less(a.rank):
		return b
	}
	return a
}

// bestOf returns the best of some nodes, or -1.
func (e *evaluator) bestOf(c *taskClass, slots []int32) int32 {
	best := rankedNode{slot: -1}
	for _, slot := range slots {
		best = e.judge(c, slot, best)
	}
	return best.slot
}

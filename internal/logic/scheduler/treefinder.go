package scheduler

import "github.com/berthd/berth/internal/cluster"

// treeFinder searches the trees of node classes. Most nodes have the order of their tree; the few with individual
// scores are judged one by one.
type treeFinder struct {
	nodes *overlay
	eval  *evaluator

	deviceNodeClasses []int32  // scratch: node classes that are searched by devices
	nodeClassTiers    []uint64 // scratch: tiers of the feasible node classes
}

// best returns the best node in the trees, or -1, and judges the nodes with individual scores one by one.
func (f *treeFinder) best(c *taskClass, heaps *deviceSearcher) int32 {
	best := rankedNode{slot: -1}
	if c.scansAll {
		for _, class := range c.filter.feasible {
			f.nodes.fleet.catalog.trees[byFill][class].page.visit(func(slot int32) {
				best = f.eval.judge(c, slot, best)
			})
		}
		return best.slot
	}
	s := treeSearch{query: query{need: c.need}, by: f, heaps: heaps, c: c}
	if c.needsSuit() {
		s.suit = s.suits
	}
	if c.found.minGroupTasks == nil && c.affinity == cluster.AntiAffinityPrefer {
		c.found.minGroupTasks = make([]int32, len(f.nodes.fleet.catalog.classes))
	}
	best = s.searchClasses()
	for _, slot := range c.penalized {
		best = f.eval.judge(c, slot, best)
	}
	for _, slot := range c.affinityScored {
		best = f.eval.judge(c, slot, best)
	}
	for slot := range c.spreadScored {
		best = f.eval.judge(c, slot, best)
	}
	for i := range c.relations {
		if t := &c.relations[i]; !t.Required && t.table == nil {
			for slot := range t.nodes { // order-free: the best is taken
				best = f.eval.judge(c, slot, best)
			}
		}
	}
	if !c.images.common {
		for slot := range c.images.visit {
			best = f.eval.judge(c, slot, best)
		}
	}
	return best.slot
}

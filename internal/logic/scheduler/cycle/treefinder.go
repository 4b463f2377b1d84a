package cycle

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/evaluation"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/index"
	"github.com/berthd/berth/internal/logic/scheduler/rank"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// treeFinder searches the trees of node classes. Most nodes have the order of their tree; the few with individual
// scores are judged one by one.
type treeFinder struct {
	nodes *fleet.Overlay
	eval  *evaluation.Evaluator

	deviceNodeClasses []int32  // scratch: node classes that are searched by devices
	nodeClassTiers    []uint64 // scratch: tiers of the feasible node classes
}

// best returns the best node in the trees, or -1, and judges the nodes with individual scores one by one.
func (f *treeFinder) best(c *taskclass.Class, heaps *deviceSearcher) int32 {
	best := rank.RankedNode{Slot: -1}
	if c.ScansAll {
		for _, class := range c.Filter.Feasible {
			f.nodes.Fleet.Catalog.Trees[fleet.ByFill][class].Page.Visit(func(slot int32) {
				best = f.eval.Judge(c, slot, best)
			})
		}
		return best.Slot
	}
	s := treeSearch{Query: index.Query{Need: c.Need}, by: f, heaps: heaps, c: c}
	if c.NeedsSuit() {
		s.Suit = s.suits
	}
	if c.Found.MinGroupTasks == nil && c.Affinity == cluster.AntiAffinityPrefer {
		c.Found.MinGroupTasks = make([]int32, len(f.nodes.Fleet.Catalog.Classes))
	}
	best = s.searchClasses()
	for _, slot := range c.Penalized {
		best = f.eval.Judge(c, slot, best)
	}
	for _, slot := range c.AffinityScored {
		best = f.eval.Judge(c, slot, best)
	}
	for slot := range c.SpreadScored {
		best = f.eval.Judge(c, slot, best)
	}
	for i := range c.Relations {
		if t := &c.Relations[i]; !t.Required && t.Table == nil {
			for slot := range t.Nodes { // order-free: the best is taken
				best = f.eval.Judge(c, slot, best)
			}
		}
	}
	if !c.Images.Common {
		for slot := range c.Images.Visit {
			best = f.eval.Judge(c, slot, best)
		}
	}
	return best.Slot
}

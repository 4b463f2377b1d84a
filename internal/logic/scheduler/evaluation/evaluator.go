// Package evaluation answers for one task class and one node of an overlay: whether the node refuses the task now, and
// else its rank.
package evaluation

import (
	"cmp"

	"github.com/berthd/berth/internal/logic/scheduler/devices"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/rank"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// Evaluator answers for one task class and one node: whether the node refuses the task now, and else its rank. It reads
// the overlay and changes nothing that others see. The class must be prepared.
type Evaluator struct {
	nodes     *fleet.Overlay
	fits      *devices.FitCache
	allocator devices.Allocator
	// valuedNodeClasses says, by node class, whether it has devices that the value model knows; nil until first used.
	valuedNodeClasses []bool
}

// New returns an evaluator of nodes. It keeps the results of device requests in fits.
func New(nodes *fleet.Overlay, fits *devices.FitCache) Evaluator {
	return Evaluator{nodes: nodes, fits: fits, allocator: devices.Allocator{Model: nodes.Fleet.DeviceValueModel()}}
}

// Judge returns the better of best and the node, if the node is feasible.
func (e *Evaluator) Judge(c *taskclass.Class, slot int32, best rank.RankedNode) rank.RankedNode {
	if !e.IsFeasible(c, slot) {
		return best
	}
	return e.Better(best, rank.RankedNode{Rank: e.RankOf(c, slot), Slot: slot})
}

// Better returns the node that ranks first; a slot of -1 means none.
func (e *Evaluator) Better(a, b rank.RankedNode) rank.RankedNode {
	switch {
	case a.Slot < 0:
		return b
	case b.Slot < 0:
		return a
	case a.Rank == b.Rank:
		if cmp.Less(e.nodes.Fleet.Names.Order[b.Slot], e.nodes.Fleet.Names.Order[a.Slot]) {
			return b
		}
		return a
	case b.Rank.Less(a.Rank):
		return b
	}
	return a
}

// BestOf returns the best of some nodes, or -1.
func (e *Evaluator) BestOf(c *taskclass.Class, slots []int32) int32 {
	best := rank.RankedNode{Slot: -1}
	for _, slot := range slots {
		best = e.Judge(c, slot, best)
	}
	return best.Slot
}

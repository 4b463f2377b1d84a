package cycle

import (
	"slices"

	"github.com/berthd/berth/internal/logic/packing"
	"github.com/berthd/berth/internal/logic/scheduler/devices"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/index"
	"github.com/berthd/berth/internal/logic/scheduler/rank"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// fillHeap starts a heap with device classes, or with single nodes where the result depends on more than the device
// class.
func (d *deviceSearcher) fillHeap(r *rank.CandidateHeap, c *taskclass.Class, classes []int32) {
	*r = rank.CandidateHeap{
		Heap: r.Heap[:0], Costs: r.Costs[:0], CostBounds: r.CostBounds[:0], StepBuffer: r.StepBuffer[:0],
		FilledAt: int32(len(d.nodes.Touched)), Seen: len(d.nodes.Touched), NodeClass: -1, MinTier: rank.Refused().Tier,
	}
	mask := uint64(0)
	for _, class := range classes {
		if c.IsDynamic && c.RefusesNodeClass(class) {
			continue
		}
		if !c.FitsByDeviceClass() {
			d.addNodesOfClass(r, c, class)
			continue
		}
		r.MinTier, mask = min(r.MinTier, d.eval.ClassTier(c, class)), mask|1<<(class%64)
	}
	if mask != 0 {
		d.addDeviceClasses(r, c, mask)
	}
	r.Heapify()
}

// fillHeapOfClass starts a heap with the nodes of one node class.
func (d *deviceSearcher) fillHeapOfClass(r *rank.CandidateHeap, c *taskclass.Class, class int32) {
	*r = rank.CandidateHeap{FilledAt: int32(len(d.nodes.Touched)), Seen: len(d.nodes.Touched), NodeClass: class}
	d.addNodesOfClass(r, c, class)
	r.Heapify()
}

// addNodesOfClass appends the feasible nodes of a node class, without heap order.
func (d *deviceSearcher) addNodesOfClass(r *rank.CandidateHeap, c *taskclass.Class, class int32) {
	q := index.Query{Need: c.Need}
	q.Visit(d.nodes.Fleet.Catalog.Trees[fleet.ByFill][class].Page, func(slot int32) {
		if d.eval.IsFeasible(c, slot) {
			r.Heap = append(r.Heap, d.nodeCandidate(r, c, slot))
		}
	})
}

// addDeviceClasses appends the device classes that may have room on nodes of the wanted node classes, without heap
// order. The mask has a bit for each node class, modulo 64.
func (d *deviceSearcher) addDeviceClasses(r *rank.CandidateHeap, c *taskclass.Class, mask uint64) {
	all, q := d.nodes.CurrentDeviceClasses(), index.Query{Need: c.Need}
	r.Heap, r.Costs = slices.Grow(r.Heap, len(all.List)), slices.Grow(r.Costs, len(all.List))
	if c.Devices.UsesValueModel {
		r.CostBounds = slices.Grow(r.CostBounds, len(all.List))
	}
	for i := range all.List {
		t, span := &all.List[i].Tree, &all.List[i].Span
		if t.Page == nil || span.Classes&mask == 0 || !q.Fits(t.MaxFree) ||
			!d.searchedByDevices(c, d.nodes.Fleet.ClassOf(t.Slot)) {
			continue
		}
		if p := d.eval.DeviceFit(c, all, int32(i)); p.Fits {
			r.Heap = append(r.Heap, d.pageCandidate(r, c, d.deviceClassCost(r, c, p, t, span), t, span))
		}
	}
}

// deviceClassCost appends the costs of a device class and returns their index.
func (d *deviceSearcher) deviceClassCost(r *rank.CandidateHeap, c *taskclass.Class, p *devices.Fit, t *index.Child,
	s *index.Span,
) int32 {
	from := len(r.CostBounds)
	for i := range p.GroupValues {
		v := &p.GroupValues[i]
		r.CostBounds = append(r.CostBounds, packing.NewCostBound(&v.Before, &v.After, c.Demand))
		if t.Children != nil { // a single page is expanded soon: tight bounds do not pay
			r.StepBuffer = r.CostBounds[from+i].Tighten(index.MaxDemand(s.MinFree, c.Need), t.MaxFree, r.StepBuffer)
		}
	}
	to := len(r.CostBounds)
	r.Costs = append(r.Costs, rank.DeviceClassCost{
		CostBounds: r.CostBounds[from:to:to], More: d.nodes.ShapeShares(c.Demand)[p.Shape],
	})
	return int32(len(r.Costs) - 1)
}

// pageCandidate returns the candidate of a page, with a lower bound of its nodes' ranks.
func (d *deviceSearcher) pageCandidate(r *rank.CandidateHeap, c *taskclass.Class, cost int32, k *index.Child,
	s *index.Span,
) rank.Candidate {
	b := &r.Costs[cost]
	least := rank.Rank{Tier: r.MinTier, Fill: c.MinFill(s, b.More)}
	x := rank.Candidate{RankedNode: rank.RankedNode{Rank: least, Slot: k.Slot}, Cost: cost, Page: k.Page}
	if k.Key == s.Last {
		x.NameOrder = d.nodes.Fleet.Names.Order[k.Slot] // all keys are equal, so the nodes are in the order of names
	}
	if len(b.CostBounds) > 0 {
		x.Rank.Tier += b.MinLoss(index.MaxDemand(s.MinFree, c.Need), k.MaxFree) - packing.NoLoss
	}
	return x
}

// nodeCandidate returns the candidate of a node.
func (d *deviceSearcher) nodeCandidate(r *rank.CandidateHeap, c *taskclass.Class, slot int32) rank.Candidate {
	x := rank.Candidate{
		RankedNode: rank.RankedNode{Rank: d.eval.RankOf(c, slot), Slot: slot},
		NameOrder:  d.nodes.Fleet.Names.Order[slot], Turn: d.nodes.Load(slot).Turn, Exact: true,
	}
	if r.NodeClass >= 0 && c.HasPreferences {
		x.Rank.Tier -= rank.TierOf(c.ClassPoints(r.NodeClass)+d.eval.NodePoints(c, slot), false)
		x.Rank.Tier += rank.TierOf(d.eval.NodePoints(c, slot), false)
	}
	return x
}

package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/logic/packing"
)

// fillHeap starts a heap with device classes, or with single nodes where the result depends on more than the device
// class.
func (d *deviceSearcher) fillHeap(r *candidateHeap, c *taskClass, classes []int32) {
	*r = candidateHeap{
		heap: r.heap[:0], costs: r.costs[:0], costBounds: r.costBounds[:0], stepBuffer: r.stepBuffer[:0],
		filledAt: int32(len(d.nodes.touched)), seen: len(d.nodes.touched), nodeClass: -1, minTier: refused().tier,
	}
	mask := uint64(0)
	for _, class := range classes {
		if c.isDynamic && c.refusesNodeClass(class) {
			continue
		}
		if !c.fitsByDeviceClass() {
			d.addNodesOfClass(r, c, class)
			continue
		}
		r.minTier, mask = min(r.minTier, d.eval.classTier(c, class)), mask|1<<(class%64)
	}
	if mask != 0 {
		d.addDeviceClasses(r, c, mask)
	}
	r.heapify()
}

// fillHeapOfClass starts a heap with the nodes of one node class.
func (d *deviceSearcher) fillHeapOfClass(r *candidateHeap, c *taskClass, class int32) {
	*r = candidateHeap{filledAt: int32(len(d.nodes.touched)), seen: len(d.nodes.touched), nodeClass: class}
	d.addNodesOfClass(r, c, class)
	r.heapify()
}

// addNodesOfClass appends the feasible nodes of a node class, without heap order.
func (d *deviceSearcher) addNodesOfClass(r *candidateHeap, c *taskClass, class int32) {
	q := query{need: c.need}
	q.visit(d.nodes.fleet.catalog.trees[byFill][class].page, func(slot int32) {
		if d.eval.isFeasible(c, slot) {
			r.heap = append(r.heap, d.nodeCandidate(r, c, slot))
		}
	})
}

// addDeviceClasses appends the device classes that may have room on nodes of the wanted node classes, without heap
// order. The mask has a bit for each node class, modulo 64.
func (d *deviceSearcher) addDeviceClasses(r *candidateHeap, c *taskClass, mask uint64) {
	all, q := d.nodes.currentDeviceClasses(), query{need: c.need}
	r.heap, r.costs = slices.Grow(r.heap, len(all.list)), slices.Grow(r.costs, len(all.list))
	if c.devices.usesValueModel {
		r.costBounds = slices.Grow(r.costBounds, len(all.list))
	}
	for i := range all.list {
		t, span := &all.list[i].tree, &all.list[i].span
		if t.page == nil || span.classes&mask == 0 || !q.fits(t.maxFree) ||
			!d.searchedByDevices(c, d.nodes.fleet.classOf(t.slot)) {
			continue
		}
		if p := d.eval.deviceFit(c, all, int32(i)); p.fits {
			r.heap = append(r.heap, d.pageCandidate(r, c, d.deviceClassCost(r, c, p, t, span), t, span))
		}
	}
}

// deviceClassCost appends the costs of a device class and returns their index.
func (d *deviceSearcher) deviceClassCost(r *candidateHeap, c *taskClass, p *deviceFit, t *child, s *span) int32 {
	from := len(r.costBounds)
	for i := range p.groupValues {
		v := &p.groupValues[i]
		r.costBounds = append(r.costBounds, packing.NewCostBound(&v.before, &v.after, c.demand))
		if t.children != nil { // a single page is expanded soon: tight bounds do not pay
			r.stepBuffer = r.costBounds[from+i].Tighten(maxDemand(s.minFree, c.need), t.maxFree, r.stepBuffer)
		}
	}
	to := len(r.costBounds)
	r.costs = append(r.costs, deviceClassCost{r.costBounds[from:to:to], d.nodes.shapeShares(c.demand)[p.shape]})
	return int32(len(r.costs) - 1)
}

// pageCandidate returns the candidate of a page, with a lower bound of its nodes' ranks.
func (d *deviceSearcher) pageCandidate(r *candidateHeap, c *taskClass, cost int32, k *child, s *span) candidate {
	b := &r.costs[cost]
	x := candidate{rankedNode: rankedNode{rank{r.minTier, c.minFill(s, b.more)}, k.slot}, cost: cost, page: k.page}
	if k.key == s.last {
		x.nameOrder = d.nodes.fleet.names.order[k.slot] // all keys are equal, so the nodes are in the order of names
	}
	if len(b.costBounds) > 0 {
		x.rank.tier += b.minLoss(maxDemand(s.minFree, c.need), k.maxFree) - packing.NoLoss
	}
	return x
}

// nodeCandidate returns the candidate of a node.
func (d *deviceSearcher) nodeCandidate(r *candidateHeap, c *taskClass, slot int32) candidate {
	x := candidate{
		rankedNode: rankedNode{d.eval.rankOf(c, slot), slot}, nameOrder: d.nodes.fleet.names.order[slot],
		turn: d.nodes.load(slot).turn, exact: true,
	}
	if r.nodeClass >= 0 && c.hasWishes {
		x.rank.tier -= tierOf(c.classPoints(r.nodeClass)+d.eval.nodePoints(c, slot), false)
		x.rank.tier += tierOf(d.eval.nodePoints(c, slot), false)
	}
	return x
}

package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// candidateHeap is a heap of nodes with devices for one task class, the best on top. It starts with whole device
// classes, each with a lower bound of its nodes' ranks. Pages that come to the top are expanded into their children. A
// touched node is pushed again; its older entries are dropped when they come to the top.
type candidateHeap struct {
	heap  []candidate
	costs []deviceClassCost
	// costBounds backs those of all costs, and stepBuffer backs their bounds.
	costBounds []packing.CostBound
	stepBuffer []int32
	filledAt   int32 // length of cycle.touched when it was filled
	seen       int   // how much of cycle.touched it contains
	// nodeClass is the only node class of the heap, or -1 if it holds all. Task classes with dynamic terms need one
	// heap for each node class: the wishes that are equal for a whole node class are then left out of its ranks.
	nodeClass int32
	minTier   uint64 // a lower bound of all tiers
}

// candidate is a node with its rank at one of its turns, or a page of a device class.
type candidate struct {
	rankedNode
	nameOrder  uint64 // of a page: a lower bound of its nodes' nameOrder
	turn, cost int32
	page       *page // nil for a node
	// exact says that rank is the node's rank; else it is a lower bound.
	exact bool
}

// deviceClassCost is what a task of one class costs on nodes of a device class: bounds by device type, and the fill
// that it adds.
type deviceClassCost struct {
	costBounds []packing.CostBound // none if the value model does not apply
	more       shares
}

// minLoss returns a lower bound of the loss on nodes with free CPU and memory from least to most. It equals valueLoss
// if least and most are equal.
func (b *deviceClassCost) minLoss(least, most cluster.Demand) uint64 {
	lost := int64(0)
	for i := range b.costBounds {
		lost += b.costBounds[i].Least(least, most)
	}
	return packing.Loss(lost)
}

// searchedByDevices reports whether the nodes of a node class are searched by device class. Where a task asks for
// devices, or where their value counts, no order of nodes holds for all tasks.
func (y *cycle) searchedByDevices(c *taskClass, class int32) bool {
	return (len(c.requests) > 0 || y.valueModelApplies(c, class)) && (c.deviceless == nil || !c.deviceless[class])
}

// maxSingleUseTasks is the number of tasks up to which a dynamic class fills a heap for each search. Beyond it, the
// class keeps one heap for each node class.
const maxSingleUseTasks = 16

// searchDeviceNodes returns the better of best and the best node with devices of some node classes. It does not
// consider wishes that single nodes of a node class meet.
func (y *cycle) searchDeviceNodes(c *taskClass, classes []int32, best rankedNode) rankedNode {
	switch {
	case len(classes) == 0:
		return best
	// The heap would not be used again.
	case c.candidateHeaps == nil && (c.left <= 1 || c.isDynamic && c.left <= maxSingleUseTasks):
		y.fillHeap(&y.singleUseHeap, c, classes)
		return y.bestOfHeap(&y.singleUseHeap, c, best)
	case !c.isDynamic:
		return y.bestOfHeap(y.candidateHeapOf(c, -1, classes), c, best)
	}
	for _, class := range classes {
		if !c.refusesNodeClass(class) {
			best = y.bestOfHeap(y.candidateHeapOf(c, class, nil), c, best)
		}
	}
	return best
}

// candidateHeapOf returns the current heap of a node class, or with -1 of all node classes.
func (y *cycle) candidateHeapOf(c *taskClass, class int32, classes []int32) *candidateHeap {
	r := c.candidateHeaps[class]
	if r == nil {
		r = &candidateHeap{}
		if class < 0 {
			y.fillHeap(r, c, classes)
		} else {
			y.fillHeapOfClass(r, c, class)
		}
		y.deviceIndexEditor.owner = &pageOwner{} // the heap refers to the present pages: copy them on change
		if c.candidateHeaps == nil {
			c.candidateHeaps = map[int32]*candidateHeap{}
		}
		c.candidateHeaps[class] = r
	}
	for ; r.seen < len(y.touched); r.seen++ {
		slot := y.touched[r.seen]
		if of := y.load(slot).class; (of == class || class < 0 && y.searchedByDevices(c, of)) && y.isFeasible(c, slot) {
			r.push(y.nodeCandidate(r, c, slot))
		}
	}
	return r
}

// bestOfHeap returns the better of best and the best node of the heap.
func (y *cycle) bestOfHeap(r *candidateHeap, c *taskClass, best rankedNode) rankedNode {
	tier := uint64(0) // the wishes that the heap leaves out
	if r.nodeClass >= 0 && c.hasWishes {
		tier = tierOf(c.classPoints(r.nodeClass), false) - tierOf(0, false)
	}
	for len(r.heap) > 0 {
		top := &r.heap[0]
		if best.slot >= 0 && best.rank.less(rank{top.rank.tier + tier, top.rank.fill}) {
			return best
		}
		turn := int32(0)
		if top.page == nil {
			turn = y.load(top.slot).turn
		}
		switch {
		case top.page != nil:
			opened := *top
			r.pop()
			best = y.expandPage(r, c, &opened, best)
		case top.exact && top.turn == turn:
			return y.better(best, rankedNode{rank: y.rankOf(c, top.slot), slot: top.slot})
		case !top.exact && turn <= r.filledAt && y.isFeasible(c, top.slot):
			*top = y.nodeCandidate(r, c, top.slot)
			r.siftDown(0)
		default:
			r.pop()
		}
	}
	return best
}

// fillHeap starts a heap with device classes, or with single nodes where the result depends on more than the device
// class.
func (y *cycle) fillHeap(r *candidateHeap, c *taskClass, classes []int32) {
	*r = candidateHeap{
		heap: r.heap[:0], costs: r.costs[:0], costBounds: r.costBounds[:0], stepBuffer: r.stepBuffer[:0],
		filledAt: int32(len(y.touched)), seen: len(y.touched), nodeClass: -1, minTier: refused().tier,
	}
	mask := uint64(0)
	for _, class := range classes {
		if c.isDynamic && c.refusesNodeClass(class) {
			continue
		}
		if !c.fitsByDeviceClass() {
			y.addNodesOfClass(r, c, class)
			continue
		}
		r.minTier, mask = min(r.minTier, y.classTier(c, class)), mask|1<<(class%64)
	}
	if mask != 0 {
		y.addDeviceClasses(r, c, mask)
	}
	r.heapify()
}

// fillHeapOfClass starts a heap with the nodes of one node class.
func (y *cycle) fillHeapOfClass(r *candidateHeap, c *taskClass, class int32) {
	*r = candidateHeap{filledAt: int32(len(y.touched)), seen: len(y.touched), nodeClass: class}
	y.addNodesOfClass(r, c, class)
	r.heapify()
}

// addNodesOfClass appends the feasible nodes of a node class, without heap order.
func (y *cycle) addNodesOfClass(r *candidateHeap, c *taskClass, class int32) {
	y.visitFitting(c, y.fleet.catalog.trees[byFill][class].page, func(slot int32) {
		if y.isFeasible(c, slot) {
			r.heap = append(r.heap, y.nodeCandidate(r, c, slot))
		}
	})
}

// addDeviceClasses appends the device classes that may have room on nodes of the wanted node classes, without heap
// order. The mask has a bit for each node class, modulo 64.
func (y *cycle) addDeviceClasses(r *candidateHeap, c *taskClass, mask uint64) {
	all, q := y.currentDeviceClasses(), query{need: c.need}
	r.heap, r.costs = slices.Grow(r.heap, len(all.list)), slices.Grow(r.costs, len(all.list))
	if c.usesValueModel {
		r.costBounds = slices.Grow(r.costBounds, len(all.list))
	}
	for i := range all.list {
		t, span := &all.list[i].tree, &all.list[i].span
		if t.page == nil || span.classes&mask == 0 || !q.fits(t.maxFree) ||
			!y.searchedByDevices(c, y.fleet.loads[t.slot].class) {
			continue
		}
		if p := y.deviceFit(c, all, int32(i)); p.fits {
			r.heap = append(r.heap, y.pageCandidate(r, c, y.deviceClassCost(r, c, p, t, span), t, span))
		}
	}
}

// expandPage pushes the children of a page. For the single-use heap it compares nodes with best at once instead.
func (y *cycle) expandPage(r *candidateHeap, c *taskClass, opened *candidate, best rankedNode) rankedNode {
	p, q := opened.page, query{need: c.need}
	for i := range p.children {
		if k := &p.children[i]; p.spans[i].classes&c.filter.mask != 0 && q.fits(k.maxFree) {
			r.push(y.pageCandidate(r, c, opened.cost, k, &p.spans[i]))
		}
	}
	b := &r.costs[opened.cost]
	for i := range p.entries {
		en := &p.entries[i]
		if !q.fits(en.free) {
			continue
		}
		k := rank{tier: r.minTier + b.minLoss(en.free, en.free) - packing.NoLoss}
		if r == &y.singleUseHeap && best.slot >= 0 && best.rank.tier < k.tier {
			continue
		}
		s := spanOf(en)
		k.fill = c.minFill(&s, b.more)
		if r == &y.singleUseHeap && best.slot >= 0 && best.rank.less(k) {
			continue
		}
		class := y.fleet.loads[en.slot].class
		if !c.filter.isFeasible[class] || y.load(en.slot).turn > r.filledAt ||
			c.isDynamic && c.refusesNodeClass(class) {
			continue
		}
		if k.tier += y.classTier(c, class) - r.minTier; r != &y.singleUseHeap {
			r.push(candidate{
				rankedNode: rankedNode{k, en.slot}, cost: opened.cost, nameOrder: y.fleet.names.order[en.slot],
			})
		} else if best.slot < 0 || !best.rank.less(k) {
			best = y.judge(c, en.slot, best)
		}
	}
	return best
}

// deviceClassCost appends the costs of a device class and returns their index.
func (y *cycle) deviceClassCost(r *candidateHeap, c *taskClass, p *deviceFit, t *child, s *span) int32 {
	from := len(r.costBounds)
	for i := range p.groupValues {
		v := &p.groupValues[i]
		r.costBounds = append(r.costBounds, packing.NewCostBound(&v.before, &v.after, c.demand))
		if t.children != nil { // a single page is expanded soon: tight bounds do not pay
			r.stepBuffer = r.costBounds[from+i].Tighten(maxDemand(s.minFree, c.need), t.maxFree, r.stepBuffer)
		}
	}
	to := len(r.costBounds)
	r.costs = append(r.costs, deviceClassCost{r.costBounds[from:to:to], y.shapeShares(c.demand)[p.shape]})
	return int32(len(r.costs) - 1)
}

// pageCandidate returns the candidate of a page, with a lower bound of its nodes' ranks.
func (y *cycle) pageCandidate(r *candidateHeap, c *taskClass, cost int32, k *child, s *span) candidate {
	b := &r.costs[cost]
	x := candidate{rankedNode: rankedNode{rank{r.minTier, c.minFill(s, b.more)}, k.slot}, cost: cost, page: k.page}
	if k.key == s.last {
		x.nameOrder = y.fleet.names.order[k.slot] // all keys are equal, so the nodes are in the order of names
	}
	if len(b.costBounds) > 0 {
		x.rank.tier += b.minLoss(maxDemand(s.minFree, c.need), k.maxFree) - packing.NoLoss
	}
	return x
}

// minFill returns a lower bound of the rank's fill on the nodes of a page, after a task that adds so much.
func (c *taskClass) minFill(s *span, more shares) uint64 {
	images := uint64(0) // nodes with rare images are judged one by one elsewhere
	if c.commonImages {
		images = c.imageBonus(len(c.images))
	}
	if c.strategy == cluster.StrategySpread {
		return s.minFill + more.fill()<<taskBits + c.imageBonus(len(c.images)) - images
	}
	fill := uint64(1<<levelShift-1) - (s.maxFill + more.fill()<<taskBits) - images
	if c.strategy == cluster.StrategyWhole {
		low, high := int(s.minBalance)+more.balance(), int(s.maxBalance)+more.balance()
		fill |= uint64(max(low, -high, 0)) << levelShift
	}
	return fill
}

// heapify establishes the heap order.
func (r *candidateHeap) heapify() {
	for i := len(r.heap)/2 - 1; i >= 0; i-- {
		r.siftDown(i)
	}
}

// nodeCandidate returns the candidate of a node.
func (y *cycle) nodeCandidate(r *candidateHeap, c *taskClass, slot int32) candidate {
	x := candidate{
		rankedNode: rankedNode{y.rankOf(c, slot), slot}, nameOrder: y.fleet.names.order[slot], turn: y.load(slot).turn,
		exact: true,
	}
	if r.nodeClass >= 0 && c.hasWishes {
		x.rank.tier -= tierOf(c.classPoints(r.nodeClass)+y.nodePoints(c, slot), false)
		x.rank.tier += tierOf(y.nodePoints(c, slot), false)
	}
	return x
}

// push adds a candidate.
func (r *candidateHeap) push(x candidate) {
	r.heap = append(r.heap, x)
	for i := len(r.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !r.heap[i].precedes(&r.heap[up]) {
			return
		}
		r.heap[i], r.heap[up] = r.heap[up], r.heap[i]
		i = up
	}
}

// pop removes the first candidate.
func (r *candidateHeap) pop() {
	last := len(r.heap) - 1
	r.heap[0] = r.heap[last]
	r.heap = r.heap[:last]
	r.siftDown(0)
}

// siftDown moves the candidate at i down to its place.
func (r *candidateHeap) siftDown(i int) {
	for {
		first := i
		for down := 2*i + 1; down <= 2*i+2 && down < len(r.heap); down++ {
			if r.heap[down].precedes(&r.heap[first]) {
				first = down
			}
		}
		if first == i {
			return
		}
		r.heap[i], r.heap[first] = r.heap[first], r.heap[i]
		i = first
	}
}

func (x *candidate) precedes(o *candidate) bool {
	return x.rank.less(o.rank) || x.rank == o.rank && x.nameOrder < o.nameOrder
}

// visitFitting calls each for the nodes below a page of the fleet that may have room. Room only shrinks during a cycle,
// so pages without room before it are skipped.
func (y *cycle) visitFitting(c *taskClass, p *page, each func(slot int32)) {
	if p == nil {
		return
	}
	q := query{need: c.need}
	for i := range p.children {
		if q.fits(p.children[i].maxFree) {
			y.visitFitting(c, p.children[i].page, each)
		}
	}
	for i := range p.entries {
		if q.fits(p.entries[i].free) {
			each(p.entries[i].slot)
		}
	}
}

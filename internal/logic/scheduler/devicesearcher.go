package scheduler

import "github.com/berthd/berth/internal/logic/packing"

// deviceSearcher searches nodes by device class, for tasks whose ranks depend on devices: no order of nodes holds for
// all of them. It expands pages of device classes in the order of their lower bounds, and stops at the first exact
// rank.
type deviceSearcher struct {
	nodes         *overlay
	eval          *evaluator
	singleUseHeap candidateHeap // for task classes that search only once
}

// searchedByDevices reports whether the nodes of a node class are searched by device class. Where a task asks for
// devices, or where their value counts, no order of nodes holds for all tasks.
func (d *deviceSearcher) searchedByDevices(c *taskClass, class int32) bool {
	return (len(c.devices.requests) > 0 || d.eval.valueModelApplies(c, class)) &&
		(c.devices.lacking == nil || !c.devices.lacking[class])
}

// maxSingleUseTasks is the number of tasks up to which a dynamic class fills a heap for each search. Beyond it, the
// class keeps one heap for each node class.
const maxSingleUseTasks = 16

// searchDeviceNodes returns the better of best and the best node with devices of some node classes. It does not
// consider wishes that single nodes of a node class meet.
func (d *deviceSearcher) searchDeviceNodes(c *taskClass, classes []int32, best rankedNode) rankedNode {
	switch {
	case len(classes) == 0:
		return best
	// The heap would not be used again.
	case c.found.candidateHeaps == nil && (c.left <= 1 || c.isDynamic && c.left <= maxSingleUseTasks):
		d.fillHeap(&d.singleUseHeap, c, classes)
		return d.bestOfHeap(&d.singleUseHeap, c, best)
	case !c.isDynamic:
		return d.bestOfHeap(d.candidateHeapOf(c, -1, classes), c, best)
	}
	for _, class := range classes {
		if !c.refusesNodeClass(class) {
			best = d.bestOfHeap(d.candidateHeapOf(c, class, nil), c, best)
		}
	}
	return best
}

// candidateHeapOf returns the current heap of a node class, or with -1 of all node classes.
func (d *deviceSearcher) candidateHeapOf(c *taskClass, class int32, classes []int32) *candidateHeap {
	r := c.found.candidateHeaps[class]
	if r == nil {
		r = &candidateHeap{}
		if class < 0 {
			d.fillHeap(r, c, classes)
		} else {
			d.fillHeapOfClass(r, c, class)
		}
		d.nodes.retainDevicePages() // the heap refers to them
		if c.found.candidateHeaps == nil {
			c.found.candidateHeaps = map[int32]*candidateHeap{}
		}
		c.found.candidateHeaps[class] = r
	}
	for ; r.seen < len(d.nodes.touched); r.seen++ {
		slot := d.nodes.touched[r.seen]
		of := d.nodes.load(slot).class
		if (of == class || class < 0 && d.searchedByDevices(c, of)) && d.eval.isFeasible(c, slot) {
			r.push(d.nodeCandidate(r, c, slot))
		}
	}
	return r
}

// bestOfHeap returns the better of best and the best node of the heap.
func (d *deviceSearcher) bestOfHeap(r *candidateHeap, c *taskClass, best rankedNode) rankedNode {
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
			turn = d.nodes.load(top.slot).turn
		}
		switch {
		case top.page != nil:
			opened := *top
			r.pop()
			best = d.expandPage(r, c, &opened, best)
		case top.exact && top.turn == turn:
			return d.eval.better(best, rankedNode{rank: d.eval.rankOf(c, top.slot), slot: top.slot})
		case !top.exact && turn <= r.filledAt && d.eval.isFeasible(c, top.slot):
			*top = d.nodeCandidate(r, c, top.slot)
			r.siftDown(0)
		default:
			r.pop()
		}
	}
	return best
}

// expandPage pushes the children of a page. For the single-use heap it compares nodes with best at once instead.
func (d *deviceSearcher) expandPage(r *candidateHeap, c *taskClass, opened *candidate, best rankedNode) rankedNode {
	p, q := opened.page, query{need: c.need}
	for i := range p.children {
		if k := &p.children[i]; p.spans[i].classes&c.filter.mask != 0 && q.fits(k.maxFree) {
			r.push(d.pageCandidate(r, c, opened.cost, k, &p.spans[i]))
		}
	}
	b := &r.costs[opened.cost]
	for i := range p.entries {
		en := &p.entries[i]
		if !q.fits(en.free) {
			continue
		}
		k := rank{tier: r.minTier + b.minLoss(en.free, en.free) - packing.NoLoss}
		if r == &d.singleUseHeap && best.slot >= 0 && best.rank.tier < k.tier {
			continue
		}
		s := spanOf(en)
		k.fill = c.minFill(&s, b.more)
		if r == &d.singleUseHeap && best.slot >= 0 && best.rank.less(k) {
			continue
		}
		class := d.nodes.fleet.classOf(en.slot)
		if !c.filter.isFeasible[class] || d.nodes.load(en.slot).turn > r.filledAt ||
			c.isDynamic && c.refusesNodeClass(class) {
			continue
		}
		if k.tier += d.eval.classTier(c, class) - r.minTier; r != &d.singleUseHeap {
			r.push(candidate{
				rankedNode: rankedNode{k, en.slot}, cost: opened.cost, nameOrder: d.nodes.fleet.names.order[en.slot],
			})
		} else if best.slot < 0 || !best.rank.less(k) {
			best = d.eval.judge(c, en.slot, best)
		}
	}
	return best
}

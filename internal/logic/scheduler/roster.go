package scheduler

// roster is the nodes of one node class whose devices have a price, for one class of tasks, so that the best is known: a heap, the best on top. What
// holds for all nodes of the class counts for nothing in it, as wishes and demands on the nearness of others may change it at any time. A node that was touched
// is entered anew; what was noted of it before is dropped once it comes to the top.
type roster struct {
	heap []candidate
	seen int // how much of cycle.touched is in it
}

// candidate is a node with its rank at one of its turns.
type candidate struct {
	block
	turn int32
}

// searchPriced is searchClass where the worth of devices counts: it knows no order of nodes that holds for all tasks, so each node is looked at for
// the first task of a class, and then those that were touched.
func (y *cycle) searchPriced(c *class, class int32, best block) block {
	if c.dynamic && c.closed(class) || c.deviceless != nil && c.deviceless[class] {
		return best
	}
	r := c.rosters[class]
	if r == nil {
		root := y.fleet.catalog.trees[byFill][class].page
		if c.left <= 1 {
			y.visitFitting(c, root, func(slot int32) { best = y.judge(c, slot, best) })
			return best
		}
		r = &roster{seen: len(y.touched)}
		y.visitFitting(c, root, func(slot int32) {
			if y.takes(c, slot) {
				r.heap = append(r.heap, y.candidate(c, slot))
			}
		})
		for i := len(r.heap)/2 - 1; i >= 0; i-- {
			y.sift(r.heap, i)
		}
		if c.rosters == nil {
			c.rosters = map[int32]*roster{}
		}
		c.rosters[class] = r
	}
	for ; r.seen < len(y.touched); r.seen++ {
		if slot := y.touched[r.seen]; y.load(slot).class == class && y.takes(c, slot) {
			y.enter(r, y.candidate(c, slot))
		}
	}
	for len(r.heap) > 0 {
		top := &r.heap[0]
		if top.turn == y.load(top.slot).turn {
			return y.better(best, block{rank: y.rankOf(c, top.slot), slot: top.slot})
		}
		last := len(r.heap) - 1
		r.heap[0] = r.heap[last]
		r.heap = r.heap[:last]
		y.sift(r.heap, 0)
	}
	return best
}

// candidate ranks a node within its class.
func (y *cycle) candidate(c *class, slot int32) candidate {
	r := y.rankOf(c, slot)
	if c.wishes {
		r.tier -= tierOf(c.classPoints(y.load(slot).class)+y.nodePoints(c, slot), false)
		r.tier += tierOf(y.nodePoints(c, slot), false)
	}
	return candidate{block{r, slot}, y.load(slot).turn}
}

// enter adds a candidate.
func (y *cycle) enter(r *roster, x candidate) {
	r.heap = append(r.heap, x)
	for i := len(r.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !y.precedes(&r.heap[i], &r.heap[up]) {
			return
		}
		r.heap[i], r.heap[up] = r.heap[up], r.heap[i]
		i = up
	}
}

// sift brings the candidate at i down to where it belongs.
func (y *cycle) sift(heap []candidate, i int) {
	for {
		first := i
		for down := 2*i + 1; down <= 2*i+2 && down < len(heap); down++ {
			if y.precedes(&heap[down], &heap[first]) {
				first = down
			}
		}
		if first == i {
			return
		}
		heap[i], heap[first] = heap[first], heap[i]
		i = first
	}
}

func (y *cycle) precedes(a, b *candidate) bool {
	return a.rank.less(b.rank) || a.rank == b.rank && y.fleet.names.label[a.slot] < y.fleet.names.label[b.slot]
}

// visitFitting calls back for every node below a page of the fleet but for some that had no room for the class before the cycle: it only takes.
func (y *cycle) visitFitting(c *class, p *page, each func(slot int32)) {
	if p == nil {
		return
	}
	q := query{need: c.need}
	for i := range p.kids {
		if q.fits(p.kids[i].most) {
			y.visitFitting(c, p.kids[i].page, each)
		}
	}
	for i := range p.entries {
		if q.fits(p.entries[i].free) {
			each(p.entries[i].slot)
		}
	}
}

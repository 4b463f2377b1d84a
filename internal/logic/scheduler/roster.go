package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// roster is nodes with devices, for one class of tasks, so that the best is known: a heap, the best on top. At first it
// holds whole shelves with ranks that none of their nodes is better than, which are opened, page by page, as they come
// to the top. A node that was touched is entered anew; what was noted of it before is dropped once it comes to the top.
type roster struct {
	heap []candidate
	bins []bin
	// tolls are those of the bins, one after the other, and room what they keep.
	tolls []packing.Toll
	room  []int32
	mark  int32 // how much of cycle.touched was known when it was filled
	seen  int   // how much of it is in the roster
	// class is the only node class that it is of, for tasks of which what holds for all nodes of a class changes all
	// the time: that counts for nothing in it. It is -1 where the roster is of all classes.
	class int32
	tier  uint64 // none is better
}

// candidate is a node with its rank at one of its turns, or a page of a shelf.
type candidate struct {
	block
	label     uint64 // of a page no node has a lower one
	turn, bin int32
	page      *page // nil for a node
	// certain says that the rank is the node's, else none is better that it may have.
	certain bool
}

// bin is a shelf as a class of tasks sees it: what the task costs the devices of each type, and what it adds to how
// full a node is.
type bin struct {
	tolls []packing.Toll // none where worth decides nothing
	more  shares
}

// loss returns what nodes of the shelf lose at least that have from least to most of CPU and memory free, as lossOf has
// it if these are the same.
func (b *bin) loss(least, most cluster.Demand) uint64 {
	lost := int64(0)
	for i := range b.tolls {
		lost += b.tolls[i].Least(least, most)
	}
	return packing.Loss(lost)
}

// devised reports whether nodes of a class of nodes are searched by their shelves: where devices are asked for, or what
// they are worth counts, there is no order of nodes that holds for all tasks.
func (y *cycle) devised(c *class, class int32) bool {
	return (len(c.requests) > 0 || y.prices(c, class)) && (c.deviceless == nil || !c.deviceless[class])
}

// mostFilled is for how many tasks, of those for which rosters are of one node class each, that is too much work.
const mostFilled = 16

// searchShelves returns the better of the best node with devices, of some node classes, and the best of others. It does
// not find the best of those nodes that wishes make better than others of their class.
func (y *cycle) searchShelves(c *class, classes []int32, best block) block {
	switch {
	case len(classes) == 0:
		return best
	case c.rosters == nil && (c.left <= 1 || c.dynamic && c.left <= mostFilled): // nobody comes back to it
		y.fillRoster(&y.once, c, classes)
		return y.topOf(&y.once, c, best)
	case !c.dynamic:
		return y.topOf(y.rosterOf(c, -1, classes), c, best)
	}
	for _, class := range classes {
		if !c.closed(class) {
			best = y.topOf(y.rosterOf(c, class, nil), c, best)
		}
	}
	return best
}

// rosterOf returns that of a node class, or with -1 of all classes, as it is now.
func (y *cycle) rosterOf(c *class, class int32, classes []int32) *roster {
	r := c.rosters[class]
	if r == nil {
		r = &roster{}
		if class < 0 {
			y.fillRoster(r, c, classes)
		} else {
			y.fillClass(r, c, class)
		}
		y.librarian.owner = &owner{} // its pages must stay as they are
		if c.rosters == nil {
			c.rosters = map[int32]*roster{}
		}
		c.rosters[class] = r
	}
	for ; r.seen < len(y.touched); r.seen++ {
		slot := y.touched[r.seen]
		if of := y.load(slot).class; (of == class || class < 0 && y.devised(c, of)) && y.takes(c, slot) {
			r.enter(y.candidate(r, c, slot))
		}
	}
	return r
}

// topOf returns the better of the best node of a roster and the best of others.
func (y *cycle) topOf(r *roster, c *class, best block) block {
	tier := uint64(0) // what the roster leaves out
	if r.class >= 0 && c.wishes {
		tier = tierOf(c.classPoints(r.class), false) - tierOf(0, false)
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
			r.drop()
			best = y.open(r, c, &opened, best)
		case top.certain && top.turn == turn:
			return y.better(best, block{rank: y.rankOf(c, top.slot), slot: top.slot})
		case !top.certain && turn <= r.mark && y.takes(c, top.slot):
			*top = y.candidate(r, c, top.slot)
			r.sift(0)
		default:
			r.drop()
		}
	}
	return best
}

// fillRoster begins a roster with the shelves, or with the nodes of some classes where shelves do not know enough.
func (y *cycle) fillRoster(r *roster, c *class, classes []int32) {
	*r = roster{
		heap: r.heap[:0], bins: r.bins[:0], tolls: r.tolls[:0], room: r.room[:0], mark: int32(len(y.touched)),
		seen: len(y.touched), class: -1, tier: refused().tier,
	}
	mask := uint64(0)
	for _, class := range classes {
		if c.dynamic && c.closed(class) {
			continue
		}
		if !c.shelvable() {
			y.enterAll(r, c, class)
			continue
		}
		r.tier, mask = min(r.tier, y.classTier(c, class)), mask|1<<(class%64)
	}
	if mask != 0 {
		y.enterShelves(r, c, mask)
	}
	r.order()
}

// fillClass begins a roster with the nodes of one class.
func (y *cycle) fillClass(r *roster, c *class, class int32) {
	*r = roster{mark: int32(len(y.touched)), seen: len(y.touched), class: class}
	y.enterAll(r, c, class)
	r.order()
}

// enterAll enters the nodes of a class, not yet in order.
func (y *cycle) enterAll(r *roster, c *class, class int32) {
	y.visitFitting(c, y.fleet.catalog.trees[byFill][class].page, func(slot int32) {
		if y.takes(c, slot) {
			r.heap = append(r.heap, y.candidate(r, c, slot))
		}
	})
}

// enterShelves enters those shelves that may have nodes of some classes and room on them, not yet in order.
func (y *cycle) enterShelves(r *roster, c *class, mask uint64) {
	all, q := y.shelvesNow(), query{need: c.need}
	r.heap, r.bins = slices.Grow(r.heap, len(all.list)), slices.Grow(r.bins, len(all.list))
	if c.priced {
		r.tolls = slices.Grow(r.tolls, len(all.list))
	}
	for i := range all.list {
		t, span := &all.list[i].tree, &all.list[i].span
		if t.page == nil || span.classes&mask == 0 || !q.fits(t.most) || !y.devised(c, y.fleet.loads[t.slot].class) {
			continue
		}
		if p := y.pricing(c, all, int32(i)); p.fits {
			r.heap = append(r.heap, y.bounded(r, c, y.bin(r, c, p, t, span), t, span))
		}
	}
}

// open enters what is below a page. Of a roster to which nobody comes back the nodes are looked at instead, if they may
// be the best.
func (y *cycle) open(r *roster, c *class, opened *candidate, best block) block {
	p, q := opened.page, query{need: c.need}
	for i := range p.kids {
		if k := &p.kids[i]; p.spans[i].classes&c.sieve.mask != 0 && q.fits(k.most) {
			r.enter(y.bounded(r, c, opened.bin, k, &p.spans[i]))
		}
	}
	b := &r.bins[opened.bin]
	for i := range p.entries {
		en := &p.entries[i]
		if !q.fits(en.free) {
			continue
		}
		k := rank{tier: r.tier + b.loss(en.free, en.free) - packing.NoLoss}
		if r == &y.once && best.slot >= 0 && best.rank.tier < k.tier {
			continue
		}
		s := spanOf(en)
		k.fill = c.leastFill(&s, b.more)
		if r == &y.once && best.slot >= 0 && best.rank.less(k) {
			continue
		}
		class := y.fleet.loads[en.slot].class
		if !c.sieve.passes[class] || y.load(en.slot).turn > r.mark || c.dynamic && c.closed(class) {
			continue
		}
		if k.tier += y.classTier(c, class) - r.tier; r != &y.once {
			r.enter(candidate{block: block{k, en.slot}, bin: opened.bin, label: y.fleet.names.label[en.slot]})
		} else if best.slot < 0 || !best.rank.less(k) {
			best = y.judge(c, en.slot, best)
		}
	}
	return best
}

// bin makes that of a shelf with some tree.
func (y *cycle) bin(r *roster, c *class, p *pricing, t *kid, s *span) int32 {
	from := len(r.tolls)
	for i := range p.bays {
		r.tolls = append(r.tolls, packing.MakeToll(&p.bays[i].before, &p.bays[i].after, c.demand))
		if t.kids != nil { // else the nodes are soon looked at
			r.room = r.tolls[from+i].Sharpen(most(s.least, c.need), t.most, r.room)
		}
	}
	r.bins = append(r.bins, bin{r.tolls[from:len(r.tolls):len(r.tolls)], y.shapeShares(c.demand)[p.shape]})
	return int32(len(r.bins) - 1)
}

// bounded returns a candidate for a page, with a rank that none of its nodes is better than.
func (y *cycle) bounded(r *roster, c *class, bin int32, k *kid, s *span) candidate {
	b := &r.bins[bin]
	x := candidate{block: block{rank{r.tier, c.leastFill(s, b.more)}, k.slot}, bin: bin, page: k.page}
	if k.key == s.last {
		x.label = y.fleet.names.label[k.slot] // in the order of names
	}
	if len(b.tolls) > 0 {
		x.rank.tier += b.loss(most(s.least, c.need), k.most) - packing.NoLoss
	}
	return x
}

// leastFill is fillOf for the best of a page, where a task adds so much.
func (c *class) leastFill(s *span, more shares) uint64 {
	images := uint64(0) // of others than those that are looked at one by one
	if c.commonImages {
		images = c.imageWorth(len(c.images))
	}
	if c.strategy == cluster.StrategySpread {
		return s.low + more.fill()<<taskBits + c.imageWorth(len(c.images)) - images
	}
	fill := uint64(1<<levelShift-1) - (s.high + more.fill()<<taskBits) - images
	if c.strategy == cluster.StrategyWhole {
		low, high := int(s.from)+more.balance(), int(s.to)+more.balance()
		fill |= uint64(max(low, -high, 0)) << levelShift
	}
	return fill
}

// order makes a heap of what was entered.
func (r *roster) order() {
	for i := len(r.heap)/2 - 1; i >= 0; i-- {
		r.sift(i)
	}
}

// candidate ranks a node for a roster.
func (y *cycle) candidate(r *roster, c *class, slot int32) candidate {
	x := candidate{
		block: block{y.rankOf(c, slot), slot}, label: y.fleet.names.label[slot], turn: y.load(slot).turn,
		certain: true,
	}
	if r.class >= 0 && c.wishes {
		x.rank.tier -= tierOf(c.classPoints(r.class)+y.nodePoints(c, slot), false)
		x.rank.tier += tierOf(y.nodePoints(c, slot), false)
	}
	return x
}

// enter adds a candidate.
func (r *roster) enter(x candidate) {
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

// drop takes the first candidate out.
func (r *roster) drop() {
	last := len(r.heap) - 1
	r.heap[0] = r.heap[last]
	r.heap = r.heap[:last]
	r.sift(0)
}

// sift brings the candidate at i down to where it belongs.
func (r *roster) sift(i int) {
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
	return x.rank.less(o.rank) || x.rank == o.rank && x.label < o.label
}

// visitFitting calls back for every node below a page of the fleet but for some that had no room for the class before
// the cycle: it only takes.
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

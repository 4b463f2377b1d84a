package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// fan is how many entries or kids a page of a tree holds at most.
const fan = 32

// A tree holds the nodes of one node class in the order of a key, of equals in the order of their names: a B+ tree
// whose pages know the most that is free, of each resource, on any node below them. So the first node in the order that
// has room for a task is found in about log n steps, whatever the task asks for.
//
// Pages are shared: the fleet changes its own in place, and a cycle, which only reads the fleet, copies a page before
// it changes it and goes on with its own. A tree is known by its root page; nil is the empty one.
type page struct {
	owner   *owner
	entries []entry // of a leaf
	kids    []kid   // of any other
	spans   []span  // of each kid, if the editor is wide
}

// owner is whose a page is. The fleet is nil.
type owner struct{ _ byte }

// entry is one node of a tree.
type entry struct {
	key  uint64
	slot int32
	// level and mark are of shelves: the balance, as shares have it, and the bit that stands for the node's class.
	level int16
	mark  uint8
	free  cluster.Demand // may be negative
}

// kid is a page below another one.
type kid struct {
	*page
	key  uint64 // the first
	slot int32
	most cluster.Demand
}

// span is between what the nodes below a page are.
type span struct {
	least     cluster.Demand // that is free
	last      uint64         // key
	low, high uint64         // of their places in the order byFill
	classes   uint64         // a bit for each of their classes, which some share
	from, to  int16          // of their balance
}

// spanOf returns that of a single node.
func spanOf(en *entry) span {
	fill := en.key & (1<<levelShift - 1)
	return span{
		least: en.free, last: en.key, low: fill, high: fill, from: en.level, to: en.level,
		classes: 1 << en.mark,
	}
}

func (s *span) join(o *span) {
	s.least, s.last = least(s.least, o.least), max(s.last, o.last)
	s.low, s.high, s.classes = min(s.low, o.low), max(s.high, o.high), s.classes|o.classes
	s.from, s.to = min(s.from, o.from), max(s.to, o.to)
}

// span returns that of a page.
func (p *page) span() span {
	if p.kids == nil {
		s := spanOf(&p.entries[0])
		for i := 1; i < len(p.entries); i++ {
			o := spanOf(&p.entries[i])
			s.join(&o)
		}
		return s
	}
	s := p.spans[0]
	for i := 1; i < len(p.spans); i++ {
		s.join(&p.spans[i])
	}
	return s
}

// top is a whole tree with what a search needs to know of it to pass it by. Those of all classes stand side by side.
type top struct {
	*page
	low, high uint64 // the first and the last key
	most      cluster.Demand
}

func topOf(root *page) top {
	if root == nil {
		return top{}
	}
	k := summary(root)
	return top{root, k.key, root.lastKey(), k.most}
}

// editor changes trees. Its methods return the new root.
type editor struct {
	owner *owner
	names *names
	wide  bool // kids have their spans
}

// set says again what a page needs to know of one of its kids.
func (e editor) set(p *page, at int, q *page) {
	if p.kids[at] = summary(q); e.wide {
		p.spans[at] = q.span()
	}
}

// add makes a page a kid of another one.
func (e editor) add(p *page, at int, q *page) {
	if p.kids = slices.Insert(p.kids, at, summary(q)); e.wide {
		p.spans = slices.Insert(p.spans, at, q.span())
	}
}

// drop takes kids from a page.
func (e editor) drop(p *page, from, to int) {
	if p.kids = slices.Delete(p.kids, from, to); e.wide {
		p.spans = slices.Delete(p.spans, from, to)
	}
}

// insert adds an entry, which must not be there.
func (e editor) insert(root *page, en entry) *page {
	if root == nil {
		p := &page{owner: e.owner, entries: make([]entry, 0, fan+1)}
		p.entries = append(p.entries, en)
		return p
	}
	root, split := e.put(root, en)
	if split == nil {
		return root
	}
	p := &page{owner: e.owner, kids: make([]kid, 0, fan+1)}
	e.add(p, 0, root)
	e.add(p, 1, split)
	return p
}

// put adds an entry below p, and returns p, or the copy that stands for it, and the page that follows it if it became
// too large.
func (e editor) put(p *page, en entry) (own, split *page) {
	p = e.own(p)
	if p.kids == nil {
		p.entries = slices.Insert(p.entries, e.find(p, en.key, en.slot), en)
		return p, e.halve(p)
	}
	at := e.below(p, en.key, en.slot)
	own, split = e.put(p.kids[at].page, en)
	if split == nil {
		k := &p.kids[at]
		k.page, k.most = own, most(k.most, en.free)
		if e.wide {
			s := spanOf(&en)
			p.spans[at].join(&s)
		}
		if at == 0 && e.before(en.key, en.slot, k.key, k.slot) {
			k.key, k.slot = en.key, en.slot
		}
		return p, nil
	}
	e.set(p, at, own)
	e.add(p, at+1, split)
	return p, e.halve(p)
}

// remove takes out the entry of a slot, which must be there.
func (e editor) remove(root *page, key uint64, slot int32) *page {
	root = e.take(root, key, slot)
	for root != nil && len(root.kids) == 1 {
		root = root.kids[0].page
	}
	return root
}

// take takes an entry out below p, and returns p or the copy that stands for it; nil if nothing is left.
func (e editor) take(p *page, key uint64, slot int32) *page {
	p = e.own(p)
	if p.kids == nil {
		at := e.find(p, key, slot)
		p.entries = slices.Delete(p.entries, at, at+1)
		if len(p.entries) == 0 {
			return nil
		}
		return p
	}
	at := e.below(p, key, slot)
	own := e.take(p.kids[at].page, key, slot)
	if own == nil {
		e.drop(p, at, at+1)
		if len(p.kids) == 0 {
			return nil
		}
		return p
	}
	e.set(p, at, own)
	if own.size() < fan/4 {
		e.join(p, at)
	}
	return p
}

// join puts a small kid together with one beside it, if there is room for both.
func (e editor) join(p *page, at int) {
	if at == len(p.kids)-1 {
		at--
	}
	if at < 0 || p.kids[at].size()+p.kids[at+1].size() > fan*3/4 {
		return
	}
	left, right := e.own(p.kids[at].page), p.kids[at+1].page
	left.entries = append(left.entries, right.entries...)
	left.kids = append(left.kids, right.kids...)
	left.spans = append(left.spans, right.spans...)
	e.set(p, at, left)
	e.drop(p, at+1, at+2)
}

// halve moves the second half of a page that is too large into a new one.
func (e editor) halve(p *page) *page {
	half := p.size() / 2
	if p.size() <= fan {
		return nil
	}
	q := &page{owner: e.owner}
	if p.kids == nil {
		q.entries = append(make([]entry, 0, fan+1), p.entries[half:]...)
		p.entries = slices.Delete(p.entries, half, len(p.entries))
	} else {
		q.kids = append(make([]kid, 0, fan+1), p.kids[half:]...)
		if e.wide {
			q.spans = append(make([]span, 0, fan+1), p.spans[half:]...)
		}
		e.drop(p, half, len(p.kids))
	}
	return q
}

// own returns the page if it may be changed, or a copy.
func (e editor) own(p *page) *page {
	if p.owner == e.owner {
		return p
	}
	q := &page{owner: e.owner}
	if p.kids == nil {
		q.entries = append(make([]entry, 0, fan+1), p.entries...)
	} else {
		q.kids = append(make([]kid, 0, fan+1), p.kids...)
		if p.spans != nil {
			q.spans = append(make([]span, 0, fan+1), p.spans...)
		}
	}
	return q
}

// before reports whether one key and slot stand before another.
func (e editor) before(key uint64, slot int32, other uint64, than int32) bool {
	return key < other || key == other && e.names.label[slot] < e.names.label[than]
}

// find returns where in a leaf an entry is, or belongs.
func (e editor) find(p *page, key uint64, slot int32) int {
	low, high := 0, len(p.entries)
	for low < high {
		mid := int(uint(low+high) / 2)
		if en := &p.entries[mid]; e.before(en.key, en.slot, key, slot) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// below returns below which kid an entry is, or belongs.
func (e editor) below(p *page, key uint64, slot int32) int {
	low, high := 1, len(p.kids)
	for low < high {
		mid := int(uint(low+high) / 2)
		if k := &p.kids[mid]; e.before(key, slot, k.key, k.slot) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low - 1
}

// nodes counts the entries below a page.
func (p *page) nodes() int {
	n := len(p.entries)
	for i := range p.kids {
		n += p.kids[i].nodes()
	}
	return n
}

func (p *page) size() int { return len(p.entries) + len(p.kids) }

// first returns the first key and slot of a tree that is not empty.
func (p *page) first() (key uint64, slot int32) {
	if p.kids == nil {
		return p.entries[0].key, p.entries[0].slot
	}
	return p.kids[0].key, p.kids[0].slot
}

// lastKey returns the last key of a tree that is not empty.
func (p *page) lastKey() uint64 {
	for p.kids != nil {
		p = p.kids[len(p.kids)-1].page
	}
	return p.entries[len(p.entries)-1].key
}

// summary says what a page above needs to know.
func summary(p *page) kid {
	k := kid{page: p}
	k.key, k.slot = p.first()
	if p.kids == nil {
		k.most = p.entries[0].free
		for i := 1; i < len(p.entries); i++ {
			k.most = most(k.most, p.entries[i].free)
		}
		return k
	}
	k.most = p.kids[0].most
	for i := 1; i < len(p.kids); i++ {
		k.most = most(k.most, p.kids[i].most)
	}
	return k
}

func most(a, b cluster.Demand) cluster.Demand {
	return cluster.Demand{CPU: max(a.CPU, b.CPU), Memory: max(a.Memory, b.Memory), Disk: max(a.Disk, b.Disk)}
}

func least(a, b cluster.Demand) cluster.Demand {
	return cluster.Demand{CPU: min(a.CPU, b.CPU), Memory: min(a.Memory, b.Memory), Disk: min(a.Disk, b.Disk)}
}

// query is a search of a tree: for the nodes that have room for what is needed, and that suit.
type query struct {
	need cluster.Demand
	suit func(slot int32) bool // nil: all do
}

func (q *query) fits(free cluster.Demand) bool {
	return q.need.CPU <= free.CPU && q.need.Memory <= free.Memory && q.need.Disk <= free.Disk
}

// lowest returns the first entry in the order with a key from low to high, or nil.
func (q *query) lowest(p *page, low, high uint64) *entry {
	if p.kids == nil {
		for i := range p.entries {
			en := &p.entries[i]
			switch {
			case en.key > high:
				return nil
			case en.key >= low && q.fits(en.free) && (q.suit == nil || q.suit(en.slot)):
				return en
			}
		}
		return nil
	}
	for i := range p.kids {
		k := &p.kids[i]
		if k.key > high {
			return nil
		}
		if i+1 < len(p.kids) && p.kids[i+1].key < low || !q.fits(k.most) {
			continue
		}
		if en := q.lowest(k.page, low, high); en != nil {
			return en
		}
	}
	return nil
}

// highest returns the entry with the highest key from low to high, of equals the first in the order; or nil.
func (q *query) highest(root *page, low, high uint64) *entry {
	last := q.last(root, low, high)
	if last == nil {
		return nil
	}
	return q.lowest(root, last.key, last.key)
}

// last returns the last entry in the order with a key from low to high, or nil.
func (q *query) last(p *page, low, high uint64) *entry {
	if p.kids == nil {
		for i := len(p.entries) - 1; i >= 0; i-- {
			en := &p.entries[i]
			switch {
			case en.key < low:
				return nil
			case en.key <= high && q.fits(en.free) && (q.suit == nil || q.suit(en.slot)):
				return en
			}
		}
		return nil
	}
	for i := len(p.kids) - 1; i >= 0; i-- {
		k := &p.kids[i]
		if k.key <= high && q.fits(k.most) {
			if en := q.last(k.page, low, high); en != nil {
				return en
			}
		}
		if k.key < low {
			return nil
		}
	}
	return nil
}

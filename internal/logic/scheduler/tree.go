package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// maxFanout is how many entries or children a page of a tree holds at most.
const maxFanout = 32

// A tree is a B+ tree. It holds the nodes of one node class ordered by a key, and by name where keys are equal. Each
// page knows, by resource, the most that is free on any node below it. So a search finds the first node with room for a
// task in about log n steps, whatever the task asks for.
//
// Pages are shared. The fleet changes its own pages in place; a cycle copies a page before it changes it. A tree is
// known by its root page; nil is the empty tree.
type page struct {
	owner    *pageOwner
	entries  []entry // of a leaf
	children []child // of an inner page
	spans    []span  // of each child, if the editor keeps spans
}

// pageOwner identifies who may change a page in place: nil is the fleet.
type pageOwner struct{ _ byte }

// entry is one node of a tree.
type entry struct {
	key  uint64
	slot int32
	// ^balance and classBit are set in trees of device classes: the node's balance as in shares, and the bit of its
	// node class.
	balance  int16
	classBit uint8
	free     cluster.Demand // may be negative
}

// child is a page below another one.
type child struct {
	*page
	key     uint64 // of the first entry
	slot    int32
	maxFree cluster.Demand
}

// span holds bounds of the nodes below a page.
type span struct {
	minFree                cluster.Demand // of what is free
	last                   uint64         // the last key
	minFill, maxFill       uint64         // of the fill, as in byFill
	classes                uint64         // a bit for each node class, modulo 64
	minBalance, maxBalance int16          // of the balance
}

// spanOf returns the span of a single node.
func spanOf(en *entry) span {
	fill := en.key & (1<<levelShift - 1)
	return span{
		minFree: en.free, last: en.key, minFill: fill, maxFill: fill, minBalance: en.balance, maxBalance: en.balance,
		classes: 1 << en.classBit,
	}
}

func (s *span) join(o *span) {
	s.minFree, s.last = minDemand(s.minFree, o.minFree), max(s.last, o.last)
	s.minFill, s.maxFill, s.classes = min(s.minFill, o.minFill), max(s.maxFill, o.maxFill), s.classes|o.classes
	s.minBalance, s.maxBalance = min(s.minBalance, o.minBalance), max(s.maxBalance, o.maxBalance)
}

// span returns the span of a page.
func (p *page) span() span {
	if p.children == nil {
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

// nodeTree is a tree with bounds by which a search can skip it. The nodeTrees of all node classes are in one slice.
type nodeTree struct {
	*page
	low, high uint64 // the first and the last key
	maxFree   cluster.Demand
}

func nodeTreeOf(root *page) nodeTree {
	if root == nil {
		return nodeTree{}
	}
	k := childOf(root)
	return nodeTree{root, k.key, root.lastKey(), k.maxFree}
}

// indexEditor changes trees. Its methods return the new root.
type indexEditor struct {
	owner     *pageOwner
	names     *names
	withSpans bool // inner pages keep the spans of their children
}

// updateChild refreshes what a page knows of one of its children.
func (e indexEditor) updateChild(p *page, at int, q *page) {
	if p.children[at] = childOf(q); e.withSpans {
		p.spans[at] = q.span()
	}
}

// insertChild makes q a child of p.
func (e indexEditor) insertChild(p *page, at int, q *page) {
	if p.children = slices.Insert(p.children, at, childOf(q)); e.withSpans {
		p.spans = slices.Insert(p.spans, at, q.span())
	}
}

// removeChildren removes children from a page.
func (e indexEditor) removeChildren(p *page, from, to int) {
	if p.children = slices.Delete(p.children, from, to); e.withSpans {
		p.spans = slices.Delete(p.spans, from, to)
	}
}

// insert adds an entry. The tree must not hold it.
func (e indexEditor) insert(root *page, en entry) *page {
	if root == nil {
		p := &page{owner: e.owner, entries: make([]entry, 0, maxFanout+1)}
		p.entries = append(p.entries, en)
		return p
	}
	root, split := e.insertBelow(root, en)
	if split == nil {
		return root
	}
	p := &page{owner: e.owner, children: make([]child, 0, maxFanout+1)}
	e.insertChild(p, 0, root)
	e.insertChild(p, 1, split)
	return p
}

// insertBelow adds an entry below p. It returns p or its copy, and the following page if p had to be split.
func (e indexEditor) insertBelow(p *page, en entry) (own, split *page) {
	p = e.own(p)
	if p.children == nil {
		p.entries = slices.Insert(p.entries, e.findEntry(p, en.key, en.slot), en)
		return p, e.split(p)
	}
	at := e.findChild(p, en.key, en.slot)
	own, split = e.insertBelow(p.children[at].page, en)
	if split == nil {
		k := &p.children[at]
		k.page, k.maxFree = own, maxDemand(k.maxFree, en.free)
		if e.withSpans {
			s := spanOf(&en)
			p.spans[at].join(&s)
		}
		if at == 0 && e.before(en.key, en.slot, k.key, k.slot) {
			k.key, k.slot = en.key, en.slot
		}
		return p, nil
	}
	e.updateChild(p, at, own)
	e.insertChild(p, at+1, split)
	return p, e.split(p)
}

// remove removes the entry of a slot. The tree must hold it.
func (e indexEditor) remove(root *page, key uint64, slot int32) *page {
	root = e.removeBelow(root, key, slot)
	for root != nil && len(root.children) == 1 {
		root = root.children[0].page
	}
	return root
}

// removeBelow removes an entry below p. It returns p or its copy; nil if nothing is left.
func (e indexEditor) removeBelow(p *page, key uint64, slot int32) *page {
	p = e.own(p)
	if p.children == nil {
		at := e.findEntry(p, key, slot)
		p.entries = slices.Delete(p.entries, at, at+1)
		if len(p.entries) == 0 {
			return nil
		}
		return p
	}
	at := e.findChild(p, key, slot)
	own := e.removeBelow(p.children[at].page, key, slot)
	if own == nil {
		e.removeChildren(p, at, at+1)
		if len(p.children) == 0 {
			return nil
		}
		return p
	}
	e.updateChild(p, at, own)
	if own.size() < maxFanout/4 {
		e.join(p, at)
	}
	return p
}

// join merges a small child with a neighbour if one page has room for both.
func (e indexEditor) join(p *page, at int) {
	if at == len(p.children)-1 {
		at--
	}
	if at < 0 || p.children[at].size()+p.children[at+1].size() > maxFanout*3/4 {
		return
	}
	left, right := e.own(p.children[at].page), p.children[at+1].page
	left.entries = append(left.entries, right.entries...)
	left.children = append(left.children, right.children...)
	left.spans = append(left.spans, right.spans...)
	e.updateChild(p, at, left)
	e.removeChildren(p, at+1, at+2)
}

// split moves the second half of a page that is too large into a new one, and returns it; else nil.
func (e indexEditor) split(p *page) *page {
	half := p.size() / 2
	if p.size() <= maxFanout {
		return nil
	}
	q := &page{owner: e.owner}
	if p.children == nil {
		q.entries = append(make([]entry, 0, maxFanout+1), p.entries[half:]...)
		p.entries = slices.Delete(p.entries, half, len(p.entries))
	} else {
		q.children = append(make([]child, 0, maxFanout+1), p.children[half:]...)
		if e.withSpans {
			q.spans = append(make([]span, 0, maxFanout+1), p.spans[half:]...)
		}
		e.removeChildren(p, half, len(p.children))
	}
	return q
}

// own returns the page if the editor may change it, else a copy.
func (e indexEditor) own(p *page) *page {
	if p.owner == e.owner {
		return p
	}
	q := &page{owner: e.owner}
	if p.children == nil {
		q.entries = append(make([]entry, 0, maxFanout+1), p.entries...)
	} else {
		q.children = append(make([]child, 0, maxFanout+1), p.children...)
		if p.spans != nil {
			q.spans = append(make([]span, 0, maxFanout+1), p.spans...)
		}
	}
	return q
}

// before reports whether one key and slot precede another.
func (e indexEditor) before(key uint64, slot int32, other uint64, than int32) bool {
	return key < other || key == other && e.names.order[slot] < e.names.order[than]
}

// findEntry returns the index of an entry in a leaf, or where it belongs.
func (e indexEditor) findEntry(p *page, key uint64, slot int32) int {
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

// findChild returns the index of the child that an entry is or belongs below.
func (e indexEditor) findChild(p *page, key uint64, slot int32) int {
	low, high := 1, len(p.children)
	for low < high {
		mid := int(uint(low+high) / 2)
		if k := &p.children[mid]; e.before(key, slot, k.key, k.slot) {
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
	for i := range p.children {
		n += p.children[i].nodes()
	}
	return n
}

func (p *page) size() int { return len(p.entries) + len(p.children) }

// first returns the first key and slot of a tree that is not empty.
func (p *page) first() (key uint64, slot int32) {
	if p.children == nil {
		return p.entries[0].key, p.entries[0].slot
	}
	return p.children[0].key, p.children[0].slot
}

// lastKey returns the last key of a tree that is not empty.
func (p *page) lastKey() uint64 {
	for p.children != nil {
		p = p.children[len(p.children)-1].page
	}
	return p.entries[len(p.entries)-1].key
}

// kidOf returns a page with what the page above needs to know of it.
func childOf(p *page) child {
	k := child{page: p}
	k.key, k.slot = p.first()
	if p.children == nil {
		k.maxFree = p.entries[0].free
		for i := 1; i < len(p.entries); i++ {
			k.maxFree = maxDemand(k.maxFree, p.entries[i].free)
		}
		return k
	}
	k.maxFree = p.children[0].maxFree
	for i := 1; i < len(p.children); i++ {
		k.maxFree = maxDemand(k.maxFree, p.children[i].maxFree)
	}
	return k
}

func maxDemand(a, b cluster.Demand) cluster.Demand {
	return cluster.Demand{CPU: max(a.CPU, b.CPU), Memory: max(a.Memory, b.Memory), Disk: max(a.Disk, b.Disk)}
}

func minDemand(a, b cluster.Demand) cluster.Demand {
	return cluster.Demand{CPU: min(a.CPU, b.CPU), Memory: min(a.Memory, b.Memory), Disk: min(a.Disk, b.Disk)}
}

// query is a search of a tree for nodes that have the needed room, and that suit accepts.
type query struct {
	need cluster.Demand
	suit func(slot int32) bool // nil accepts all
}

func (q *query) fits(free cluster.Demand) bool {
	return q.need.CPU <= free.CPU && q.need.Memory <= free.Memory && q.need.Disk <= free.Disk
}

// lowest returns the first entry in the tree's order with a key from low to high, or nil.
func (q *query) lowest(p *page, low, high uint64) *entry {
	if p.children == nil {
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
	for i := range p.children {
		k := &p.children[i]
		if k.key > high {
			return nil
		}
		if i+1 < len(p.children) && p.children[i+1].key < low || !q.fits(k.maxFree) {
			continue
		}
		if en := q.lowest(k.page, low, high); en != nil {
			return en
		}
	}
	return nil
}

// highest returns the entry with the highest key from low to high, or nil; of equal keys the first entry.
func (q *query) highest(root *page, low, high uint64) *entry {
	last := q.last(root, low, high)
	if last == nil {
		return nil
	}
	return q.lowest(root, last.key, last.key)
}

// last returns the last entry in the tree's order with a key from low to high, or nil.
func (q *query) last(p *page, low, high uint64) *entry {
	if p.children == nil {
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
	for i := len(p.children) - 1; i >= 0; i-- {
		k := &p.children[i]
		if k.key <= high && q.fits(k.maxFree) {
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

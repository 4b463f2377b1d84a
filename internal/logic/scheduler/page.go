package scheduler

import "github.com/berthd/berth/internal/cluster"

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

// nodes counts the entries below a page.
func (p *page) nodes() int {
	n := len(p.entries)
	for i := range p.children {
		n += p.children[i].nodes()
	}
	return n
}

// visit calls each for every node below the page.
func (p *page) visit(each func(slot int32)) {
	if p == nil {
		return
	}
	for i := range p.children {
		p.children[i].page.visit(each)
	}
	for i := range p.entries {
		each(p.entries[i].slot)
	}
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

// childOf returns a page with what the page above needs to know of it.
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

func (p *page) clone() *page {
	if p == nil {
		return nil
	}
	q := indexEditor{owner: &pageOwner{}}.own(p)
	q.owner = nil
	for i := range q.children {
		q.children[i].page = q.children[i].page.clone()
	}
	return q
}

func maxDemand(a, b cluster.Demand) cluster.Demand {
	return cluster.Demand{CPU: max(a.CPU, b.CPU), Memory: max(a.Memory, b.Memory), Disk: max(a.Disk, b.Disk)}
}

func minDemand(a, b cluster.Demand) cluster.Demand {
	return cluster.Demand{CPU: min(a.CPU, b.CPU), Memory: min(a.Memory, b.Memory), Disk: min(a.Disk, b.Disk)}
}

// Package index keeps nodes in order: by name, and in B+ trees by what they use. A tree gives the first node that has
// room for a task in about log n steps, whatever the task requests. Trees share pages; an editor copies a page that it
// does not own before it changes it. So a cycle changes its own trees while the fleet's stay as they are.
package index

import (
	"github.com/berthd/berth/internal/cluster"
)

// maxFanout is how many entries or children a page of a tree holds at most.
const maxFanout = 32

// Page is a page of a B+ tree. The tree holds nodes ordered by a key, and by name where keys are equal. Each page
// knows, by resource, the most that is free on any node below it. So a search finds the first node with room for a task
// in about log n steps, whatever the task requests.
//
// Pages are shared. The fleet changes its own pages in place; a cycle copies a page before it changes it. A tree is
// known by its root page; nil is the empty tree.
type Page struct {
	owner    *Owner
	Entries  []Entry // of a leaf
	Children []Child // of an inner page
	Spans    []Span  // of each child, if the editor keeps spans
}

// Owner identifies who may change a page in place: nil is the fleet.
type Owner struct{ _ byte }

// Entry is one node of a tree.
type Entry struct {
	Key  uint64
	Slot int32
	// ^balance and ClassBit are set in trees of device classes: the node's balance as in shares, and the bit of its
	// node class.
	Balance  int16
	ClassBit uint8
	Free     cluster.Demand // may be negative
}

// Child is a page below another one.
type Child struct {
	*Page
	Key     uint64 // of the first entry
	Slot    int32
	MaxFree cluster.Demand
}

// Span holds bounds of the nodes below a page.
type Span struct {
	MinFree                cluster.Demand // of what is free
	Last                   uint64         // the last key
	MinFill, MaxFill       uint64         // of the fill, as in the keys of trees by fill
	Classes                uint64         // a bit for each node class, modulo 64
	MinBalance, MaxBalance int16          // of the balance
}

// SpanOf returns the span of a single node.
func SpanOf(en *Entry) Span {
	fill := en.Key & (1<<LevelShift - 1)
	return Span{
		MinFree: en.Free, Last: en.Key, MinFill: fill, MaxFill: fill, MinBalance: en.Balance, MaxBalance: en.Balance,
		Classes: 1 << en.ClassBit,
	}
}

func (s *Span) join(o *Span) {
	s.MinFree, s.Last = minDemand(s.MinFree, o.MinFree), max(s.Last, o.Last)
	s.MinFill, s.MaxFill, s.Classes = min(s.MinFill, o.MinFill), max(s.MaxFill, o.MaxFill), s.Classes|o.Classes
	s.MinBalance, s.MaxBalance = min(s.MinBalance, o.MinBalance), max(s.MaxBalance, o.MaxBalance)
}

// Span returns the span of a page.
func (p *Page) Span() Span {
	if p.Children == nil {
		s := SpanOf(&p.Entries[0])
		for i := 1; i < len(p.Entries); i++ {
			o := SpanOf(&p.Entries[i])
			s.join(&o)
		}
		return s
	}
	s := p.Spans[0]
	for i := 1; i < len(p.Spans); i++ {
		s.join(&p.Spans[i])
	}
	return s
}

// Nodes counts the entries below a page.
func (p *Page) Nodes() int {
	n := len(p.Entries)
	for i := range p.Children {
		n += p.Children[i].Nodes()
	}
	return n
}

// Visit calls each for every node below the page.
func (p *Page) Visit(each func(slot int32)) {
	if p == nil {
		return
	}
	for i := range p.Children {
		p.Children[i].Page.Visit(each)
	}
	for i := range p.Entries {
		each(p.Entries[i].Slot)
	}
}

func (p *Page) size() int { return len(p.Entries) + len(p.Children) }

// first returns the first key and slot of a tree that is not empty.
func (p *Page) first() (key uint64, slot int32) {
	if p.Children == nil {
		return p.Entries[0].Key, p.Entries[0].Slot
	}
	return p.Children[0].Key, p.Children[0].Slot
}

// lastKey returns the last key of a tree that is not empty.
func (p *Page) lastKey() uint64 {
	for p.Children != nil {
		p = p.Children[len(p.Children)-1].Page
	}
	return p.Entries[len(p.Entries)-1].Key
}

// ChildOf returns a page with what the page above needs to know of it.
func ChildOf(p *Page) Child {
	k := Child{Page: p}
	k.Key, k.Slot = p.first()
	if p.Children == nil {
		k.MaxFree = p.Entries[0].Free
		for i := 1; i < len(p.Entries); i++ {
			k.MaxFree = MaxDemand(k.MaxFree, p.Entries[i].Free)
		}
		return k
	}
	k.MaxFree = p.Children[0].MaxFree
	for i := 1; i < len(p.Children); i++ {
		k.MaxFree = MaxDemand(k.MaxFree, p.Children[i].MaxFree)
	}
	return k
}

// Clone returns an independent copy of a tree, which the fleet may change in place.
func (p *Page) Clone() *Page {
	if p == nil {
		return nil
	}
	q := Editor{Owner: &Owner{}}.own(p)
	q.owner = nil
	for i := range q.Children {
		q.Children[i].Page = q.Children[i].Page.Clone()
	}
	return q
}

// MaxDemand returns the larger amount of each resource.
func MaxDemand(a, b cluster.Demand) cluster.Demand {
	return cluster.Demand{CPU: max(a.CPU, b.CPU), Memory: max(a.Memory, b.Memory), Disk: max(a.Disk, b.Disk)}
}

func minDemand(a, b cluster.Demand) cluster.Demand {
	return cluster.Demand{CPU: min(a.CPU, b.CPU), Memory: min(a.Memory, b.Memory), Disk: min(a.Disk, b.Disk)}
}

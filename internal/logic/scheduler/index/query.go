package index

import (
	"github.com/berthd/berth/internal/cluster"
)

// Query is a search of a tree for nodes that have the needed room, and that suit accepts.
type Query struct {
	Need cluster.Demand
	Suit func(slot int32) bool // nil accepts all
}

// Fits reports whether the free amounts are enough.
func (q *Query) Fits(free cluster.Demand) bool {
	return q.Need.CPU <= free.CPU && q.Need.Memory <= free.Memory && q.Need.Disk <= free.Disk
}

// Lowest returns the first entry in the tree's order with a key from low to high, or nil.
func (q *Query) Lowest(p *Page, low, high uint64) *Entry {
	if p.Children == nil {
		for i := range p.Entries {
			en := &p.Entries[i]
			switch {
			case en.Key > high:
				return nil
			case en.Key >= low && q.Fits(en.Free) && (q.Suit == nil || q.Suit(en.Slot)):
				return en
			}
		}
		return nil
	}
	for i := range p.Children {
		k := &p.Children[i]
		if k.Key > high {
			return nil
		}
		if i+1 < len(p.Children) && p.Children[i+1].Key < low || !q.Fits(k.MaxFree) {
			continue
		}
		if en := q.Lowest(k.Page, low, high); en != nil {
			return en
		}
	}
	return nil
}

// Highest returns the entry with the highest key from low to high, or nil; of equal keys the first entry.
func (q *Query) Highest(root *Page, low, high uint64) *Entry {
	last := q.last(root, low, high)
	if last == nil {
		return nil
	}
	return q.Lowest(root, last.Key, last.Key)
}

// last returns the last entry in the tree's order with a key from low to high, or nil.
func (q *Query) last(p *Page, low, high uint64) *Entry {
	if p.Children == nil {
		for i := len(p.Entries) - 1; i >= 0; i-- {
			en := &p.Entries[i]
			switch {
			case en.Key < low:
				return nil
			case en.Key <= high && q.Fits(en.Free) && (q.Suit == nil || q.Suit(en.Slot)):
				return en
			}
		}
		return nil
	}
	for i := len(p.Children) - 1; i >= 0; i-- {
		k := &p.Children[i]
		if k.Key <= high && q.Fits(k.MaxFree) {
			if en := q.last(k.Page, low, high); en != nil {
				return en
			}
		}
		if k.Key < low {
			return nil
		}
	}
	return nil
}

// Visit calls each for the nodes below a page that have the needed room, whether suit accepts them or not.
func (q *Query) Visit(p *Page, each func(slot int32)) {
	if p == nil {
		return
	}
	for i := range p.Children {
		if q.Fits(p.Children[i].MaxFree) {
			q.Visit(p.Children[i].Page, each)
		}
	}
	for i := range p.Entries {
		if q.Fits(p.Entries[i].Free) {
			each(p.Entries[i].Slot)
		}
	}
}

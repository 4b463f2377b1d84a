package scheduler

import "github.com/berthd/berth/internal/cluster"

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

// visit calls each for the nodes below a page that have the needed room, whether suit accepts them or not.
func (q *query) visit(p *page, each func(slot int32)) {
	if p == nil {
		return
	}
	for i := range p.children {
		if q.fits(p.children[i].maxFree) {
			q.visit(p.children[i].page, each)
		}
	}
	for i := range p.entries {
		if q.fits(p.entries[i].free) {
			each(p.entries[i].slot)
		}
	}
}

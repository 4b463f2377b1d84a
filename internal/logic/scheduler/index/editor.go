package index

import (
	"slices"
)

// Editor changes trees. Its methods return the new root.
type Editor struct {
	Owner     *Owner // of the pages that it changes in place; nil for those of the fleet
	Names     *Names // the order of nodes with equal keys
	WithSpans bool   // inner pages keep the spans of their children
}

// updateChild refreshes what a page knows of one of its children.
func (e Editor) updateChild(p *Page, at int, q *Page) {
	if p.Children[at] = ChildOf(q); e.WithSpans {
		p.Spans[at] = q.Span()
	}
}

// insertChild makes q a child of p.
func (e Editor) insertChild(p *Page, at int, q *Page) {
	if p.Children = slices.Insert(p.Children, at, ChildOf(q)); e.WithSpans {
		p.Spans = slices.Insert(p.Spans, at, q.Span())
	}
}

// removeChildren removes children from a page.
func (e Editor) removeChildren(p *Page, from, to int) {
	if p.Children = slices.Delete(p.Children, from, to); e.WithSpans {
		p.Spans = slices.Delete(p.Spans, from, to)
	}
}

// Insert adds an entry. The tree must not hold it.
func (e Editor) Insert(root *Page, en Entry) *Page {
	if root == nil {
		p := &Page{owner: e.Owner, Entries: make([]Entry, 0, maxFanout+1)}
		p.Entries = append(p.Entries, en)
		return p
	}
	root, split := e.insertBelow(root, en)
	if split == nil {
		return root
	}
	p := &Page{owner: e.Owner, Children: make([]Child, 0, maxFanout+1)}
	e.insertChild(p, 0, root)
	e.insertChild(p, 1, split)
	return p
}

// insertBelow adds an entry below p. It returns p or its copy, and the following page if p had to be split.
func (e Editor) insertBelow(p *Page, en Entry) (own, split *Page) {
	p = e.own(p)
	if p.Children == nil {
		p.Entries = slices.Insert(p.Entries, e.findEntry(p, en.Key, en.Slot), en)
		return p, e.split(p)
	}
	at := e.findChild(p, en.Key, en.Slot)
	own, split = e.insertBelow(p.Children[at].Page, en)
	if split == nil {
		k := &p.Children[at]
		k.Page, k.MaxFree = own, MaxDemand(k.MaxFree, en.Free)
		if e.WithSpans {
			s := SpanOf(&en)
			p.Spans[at].join(&s)
		}
		if at == 0 && e.before(en.Key, en.Slot, k.Key, k.Slot) {
			k.Key, k.Slot = en.Key, en.Slot
		}
		return p, nil
	}
	e.updateChild(p, at, own)
	e.insertChild(p, at+1, split)
	return p, e.split(p)
}

// Remove removes the entry of a slot. The tree must hold it.
func (e Editor) Remove(root *Page, key uint64, slot int32) *Page {
	root = e.removeBelow(root, key, slot)
	for root != nil && len(root.Children) == 1 {
		root = root.Children[0].Page
	}
	return root
}

// removeBelow removes an entry below p. It returns p or its copy; nil if nothing is left.
func (e Editor) removeBelow(p *Page, key uint64, slot int32) *Page {
	p = e.own(p)
	if p.Children == nil {
		at := e.findEntry(p, key, slot)
		p.Entries = slices.Delete(p.Entries, at, at+1)
		if len(p.Entries) == 0 {
			return nil
		}
		return p
	}
	at := e.findChild(p, key, slot)
	own := e.removeBelow(p.Children[at].Page, key, slot)
	if own == nil {
		e.removeChildren(p, at, at+1)
		if len(p.Children) == 0 {
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
func (e Editor) join(p *Page, at int) {
	if at == len(p.Children)-1 {
		at--
	}
	if at < 0 || p.Children[at].size()+p.Children[at+1].size() > maxFanout*3/4 {
		return
	}
	left, right := e.own(p.Children[at].Page), p.Children[at+1].Page
	left.Entries = append(left.Entries, right.Entries...)
	left.Children = append(left.Children, right.Children...)
	left.Spans = append(left.Spans, right.Spans...)
	e.updateChild(p, at, left)
	e.removeChildren(p, at+1, at+2)
}

// split moves the second half of a page that is too large into a new one, and returns it; else nil.
func (e Editor) split(p *Page) *Page {
	half := p.size() / 2
	if p.size() <= maxFanout {
		return nil
	}
	q := &Page{owner: e.Owner}
	if p.Children == nil {
		q.Entries = append(make([]Entry, 0, maxFanout+1), p.Entries[half:]...)
		p.Entries = slices.Delete(p.Entries, half, len(p.Entries))
	} else {
		q.Children = append(make([]Child, 0, maxFanout+1), p.Children[half:]...)
		if e.WithSpans {
			q.Spans = append(make([]Span, 0, maxFanout+1), p.Spans[half:]...)
		}
		e.removeChildren(p, half, len(p.Children))
	}
	return q
}

// own returns the page if the editor may change it, else a copy.
func (e Editor) own(p *Page) *Page {
	if p.owner == e.Owner {
		return p
	}
	q := &Page{owner: e.Owner}
	if p.Children == nil {
		q.Entries = append(make([]Entry, 0, maxFanout+1), p.Entries...)
	} else {
		q.Children = append(make([]Child, 0, maxFanout+1), p.Children...)
		if p.Spans != nil {
			q.Spans = append(make([]Span, 0, maxFanout+1), p.Spans...)
		}
	}
	return q
}

// before reports whether one key and slot precede another.
func (e Editor) before(key uint64, slot int32, other uint64, than int32) bool {
	return key < other || key == other && e.Names.Order[slot] < e.Names.Order[than]
}

// findEntry returns the index of an entry in a leaf, or where it belongs.
func (e Editor) findEntry(p *Page, key uint64, slot int32) int {
	low, high := 0, len(p.Entries)
	for low < high {
		mid := int(uint(low+high) / 2)
		if en := &p.Entries[mid]; e.before(en.Key, en.Slot, key, slot) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// findChild returns the index of the child that an entry is or belongs below.
func (e Editor) findChild(p *Page, key uint64, slot int32) int {
	low, high := 1, len(p.Children)
	for low < high {
		mid := int(uint(low+high) / 2)
		if k := &p.Children[mid]; e.before(key, slot, k.Key, k.Slot) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low - 1
}

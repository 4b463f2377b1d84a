package scheduler

import "slices"

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

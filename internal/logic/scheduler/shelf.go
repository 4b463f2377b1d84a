package scheduler

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// shelf is nodes of one shape that have the same devices, of which the same is free. What requests for devices come to
// on one of them they come to on all: beside what tells node classes apart only the CPU and the memory that go with the
// devices differ, by which a tree holds them: see placeOn.
type shelf struct {
	name  string
	shape int32
	tree  kid // without a page: vacant
	span  span
}

// shelves are those of a fleet, or of a cycle that placed something.
type shelves struct {
	list   []shelf
	byName map[string]int32
	fleets map[string]int32 // of a cycle: the names that its fleet knows
	vacant []int32
}

// offShelf is the bit of load.stale which says that the node's shelf does not hold it so yet.
const offShelf = 1 << orders

func newShelves() shelves { return shelves{byName: map[string]int32{}} }

// find returns the shelf of that name, a new one if there is none.
func (s *shelves) find(name []byte, shape int32) int32 {
	if i, found := s.byName[string(name)]; found {
		return i
	}
	if i, found := s.fleets[string(name)]; found {
		return i
	}
	var i int32
	if last := len(s.vacant) - 1; last >= 0 {
		i, s.vacant = s.vacant[last], s.vacant[:last]
	} else {
		i = int32(len(s.list))
		s.list = append(s.list, shelf{})
	}
	s.list[i] = shelf{name: string(name), shape: shape}
	s.byName[s.list[i].name] = i
	return i
}

// vacate frees a shelf of a fleet if it is empty.
func (s *shelves) vacate(i int32) {
	old := &s.list[i]
	if old.tree.page != nil {
		return
	}
	delete(s.byName, old.name)
	*old = shelf{}
	s.vacant = append(s.vacant, i)
}

func (s *shelf) put(e editor, en entry) { s.root(e.insert(s.tree.page, en)) }

func (s *shelf) take(e editor, key uint64, slot int32) {
	s.root(e.remove(s.tree.page, key, slot))
}

func (s *shelf) root(p *page) {
	if s.tree, s.span = (kid{}), (span{}); p != nil {
		s.tree, s.span = summary(p), p.span()
	}
}

func (s *shelves) clone() shelves {
	c := shelves{list: slices.Clone(s.list), byName: maps.Clone(s.byName), vacant: slices.Clone(s.vacant)}
	for i := range c.list {
		c.list[i].tree.page = c.list[i].tree.page.clone()
	}
	return c
}

// shelve puts a node with devices on the shelf where it belongs: the one where it is, if nothing has changed about its
// devices.
func (f *Fleet) shelve(i int32, anew bool) {
	s, l, all := &f.slots[i], &f.loads[i], &f.catalog.shelves
	if l.class < 0 || len(s.node.Devices) == 0 {
		return
	}
	old, to := l.shelf, l.shelf
	if anew || old < 0 {
		shape := f.catalog.classes[l.class].shape
		f.catalog.buffer = shelfName(f.catalog.buffer[:0], shape, &s.node, s.bays, s.devices)
		to = all.find(f.catalog.buffer, shape)
	}
	if old >= 0 {
		all.list[old].take(f.librarian(), l.shelved, i)
	}
	en := f.catalog.placeOn(l, i)
	l.shelf, l.shelved = to, en.key
	all.list[to].put(f.librarian(), en)
	if old >= 0 && old != to {
		all.vacate(old)
	}
}

// unshelve takes a node off its shelf, if it is on one.
func (f *Fleet) unshelve(i int32) {
	l, all := &f.loads[i], &f.catalog.shelves
	if l.shelf < 0 {
		return
	}
	all.list[l.shelf].take(f.librarian(), l.shelved, i)
	all.vacate(l.shelf)
	l.shelf = -1
}

func (f *Fleet) librarian() editor { return editor{names: &f.names, wide: true} }

// shelfName appends all that the shelf of a node depends on: its shape, its devices, and of each what is free. Where
// the devices of one type are all alike it does not matter which of them; else it does, as the order of the list and of
// their IDs decides between those that will both do.
func shelfName(b []byte, shape int32, n *Node, bays []bay, used deviceUses) []byte {
	b = appendNumber(b, uint64(shape))
	order := make([]int, 0, 8)
	for i := range bays {
		order = append(order, i)
	}
	slices.SortFunc(order, func(i, j int) int { return strings.Compare(bays[i].kind, bays[j].kind) })
	for _, i := range order {
		b = bayName(b, n, &bays[i], used)
	}
	return b
}

// alikeDevices reports whether devices of one type differ only in what is used of them and where they are attached, and
// none is left out by package packing.
func alikeDevices(n *Node, v *bay) bool {
	first := &n.Devices[v.at[0]]
	return len(v.at) <= packing.MostDevices && !slices.ContainsFunc(v.at, func(at uint16) bool {
		d := &n.Devices[at]
		return d.Model != first.Model || d.Memory != first.Memory
	})
}

// placeOf is what shelves look at of a device.
type placeOf struct {
	numa, share int
	memory      cluster.Bytes
}

func bayName(b []byte, n *Node, v *bay, used deviceUses) []byte {
	first := &n.Devices[v.at[0]]
	b = appendNumber(textKey(appendNumber(textKey(b, v.kind), uint64(len(v.at))), first.Model), uint64(first.Memory))
	all := make([]placeOf, 0, 16)
	for _, at := range v.at {
		d := &n.Devices[at]
		p := placeOf{numa: d.Numa}
		if len(used) > 0 {
			u := used.of(d.ID)
			p.share, p.memory = u.Share, u.Memory
		}
		all = append(all, p)
	}
	alike := alikeDevices(n, v)
	if alike {
		slices.SortFunc(all, func(a, b placeOf) int {
			return cmp.Or(cmp.Compare(a.numa, b.numa), cmp.Compare(a.share, b.share), cmp.Compare(a.memory, b.memory))
		})
	}
	for _, p := range all {
		b = appendNumber(appendNumber(appendNumber(b, uint64(p.numa)), uint64(p.share)), uint64(p.memory))
	}
	if alike {
		return b
	}
	byID := slices.Clone(v.at)
	slices.SortFunc(byID, func(i, j uint16) int { return strings.Compare(n.Devices[i].ID, n.Devices[j].ID) })
	for i, at := range v.at {
		d := &n.Devices[at]
		b = appendNumber(appendNumber(textKey(b, d.Model), uint64(d.Memory)), uint64(byID[i]-v.at[0]))
	}
	return b
}

// shelvesNow returns the shelves as they are now.
func (y *cycle) shelvesNow() *shelves {
	base := &y.fleet.catalog.shelves
	if y.shelved == len(y.touched) {
		return cmp.Or(y.shelves, base)
	}
	if y.shelves == nil {
		y.shelves = &shelves{list: slices.Clone(base.list), byName: map[string]int32{}, fleets: base.byName}
	}
	for _, slot := range y.touched[y.shelved:] {
		l := y.ownLoad(slot)
		if l.stale&offShelf == 0 || l.shelf < 0 {
			continue
		}
		l.stale &^= offShelf
		to := l.shelf
		if used, own := y.devices[slot]; own {
			shape := y.fleet.catalog.classes[l.class].shape
			y.buffer = shelfName(y.buffer[:0], shape, y.node(slot), y.bays[slot], used)
			to = y.shelves.find(y.buffer, shape)
		}
		y.shelves.list[l.shelf].take(y.librarian, l.shelved, slot)
		en := y.fleet.catalog.placeOn(l, slot)
		l.shelf, l.shelved = to, en.key
		y.shelves.list[to].put(y.librarian, en)
	}
	y.shelved = len(y.touched)
	return y.shelves
}

// pricing is what the requests of a class come to on the nodes of a shelf.
type pricing struct {
	known, fits bool
	shape       int32
	bays        []bayPricing // of the types that the fleet's worth knows; nil where worth decides nothing
}

type bayPricing struct{ before, after packing.Stock }

// pricings are those of all classes with the same requests, by shelf.
type pricings struct {
	list       []pricing
	store      []bayPricing // of all
	deviceless []bool       // by node class, those without the devices
}

// shelvable reports whether what devices a class gets is the same all over a shelf: it is not where two of its requests
// share devices of a type, which may be alike but for the memory that is left of them.
func (c *class) shelvable() bool {
	for i := range c.requests {
		if c.requests[i].Share > 0 && slices.ContainsFunc(c.requests[:i], func(r cluster.DeviceRequest) bool {
			return r.Share > 0 && r.Type == c.requests[i].Type
		}) {
			return false
		}
	}
	return true
}

// pricingsOf returns those of a class.
func (y *cycle) pricingsOf(c *class) *pricings {
	if c.pricings != nil {
		return c.pricings
	}
	y.buffer = append(y.buffer[:0], 0)
	if c.priced {
		y.buffer[0] = 1
	}
	for i := range c.requests {
		y.buffer = requestKey(y.buffer, &c.requests[i])
	}
	p := y.pricings[string(y.buffer)]
	if p == nil {
		if y.pricings == nil {
			y.pricings = map[string]*pricings{}
		}
		p = &pricings{}
		y.pricings[string(y.buffer)] = p
	}
	c.pricings = p
	return p
}

// requestKey appends all of a request.
func requestKey(b []byte, r *cluster.DeviceRequest) []byte {
	numa := uint64(0)
	if r.OneNuma {
		numa = 1
	}
	b = textKey(b, r.Type)
	for _, n := range []uint64{uint64(r.Count), uint64(r.Share), uint64(r.Memory), numa, uint64(len(r.Models))} {
		b = appendNumber(b, n)
	}
	for _, model := range r.Models {
		b = textKey(b, model)
	}
	return b
}

// pricing finds out what a class's requests come to on a shelf, by any of its nodes.
func (y *cycle) pricing(c *class, all *shelves, i int32) *pricing {
	list := y.pricingsOf(c)
	if len(list.list) < len(all.list) {
		list.list = append(list.list, make([]pricing, len(all.list)-len(list.list))...)
	}
	p := &list.list[i]
	if p.known {
		return p
	}
	slot := all.list[i].tree.slot
	p.known, p.fits, p.shape = true, !y.lacksDevices(c, slot), all.list[i].shape
	if !p.fits || !y.prices(c, y.fleet.loads[slot].class) {
		return p
	}
	bays := y.baysOf(slot)
	after := bays
	if len(c.requests) > 0 {
		y.pickFor(c, slot)
		after = y.desk
	}
	from := len(list.store)
	for b := range bays {
		if bays[b].worth >= 0 {
			w := y.fleet.worth.kinds[bays[b].worth].worth
			list.store = append(list.store, bayPricing{w.Stock(bays[b].devices), w.Stock(after[b].devices)})
		}
	}
	p.bays = slices.Clip(list.store[from:])
	return p
}

package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// cycle is the state of one call of Schedule: the fleet, and on top of it what the cycle placed.
type cycle struct {
	fleet   *Fleet
	pending []cluster.Pending
	order   []int32 // of decisions, by index of pending
	opts    Options

	placed   []Placement
	placedAt []whereabouts
	told     map[int32]cluster.Waiting // by position, to members of gangs
	epoch    int                       // how often something was given back
	kept     map[int32]*kept           // by position, what is kept for tasks that were promised room

	loads   []*loadPage // those that the cycle changed; nil: as in the fleet
	ports   map[int32]*portSet
	devices map[int32]deviceUses
	bays    map[int32][]bay // of the same nodes
	desk    []bay           // where devices are chosen, see pick
	picks   []pick
	pricey  []bool  // by node class, whether it has devices that the fleet's worth knows; nil until somebody asks
	touched []int32 // the nodes in the order in which tasks were placed on them
	// trees are those of the fleet, by class, until the cycle has its own; moved is how much of touched has gone into
	// them.
	trees  [orders][]top
	moved  [orders]int
	editor editor
	// shelves are the fleet's until the cycle has its own, and pricings what requests come to there; shelved is as
	// moved.
	shelves   *shelves
	pricings  map[string]*pricings
	librarian editor
	once      roster   // for a class of one task
	some      []int32  // node classes, while they are searched
	tiers     []uint64 // of those that take a class
	shelved   int

	groups  map[string]*group // by the tasks that their names say
	classOf []*class          // by position in the order of decisions
	classes []*class
	tables  map[string]*table // by attribute
	// watches and guards are the views on other workloads, by what they are about.
	watches, guards map[string]*watch

	sieves    map[string]*sieve
	buffer    []byte
	more      []shares // what amount adds on each shape
	amount    cluster.Demand
	spareRank []*ranking
	// spareCounts are those of groups that are done.
	spareCounts [][]int32
}

// loadPage is the cycle's own loads of some neighbouring slots.
type loadPage [loadsPerPage]load

const (
	loadShift    = 5
	loadsPerPage = 1 << loadShift
)

func newCycle(f *Fleet, pending []cluster.Pending, opts Options) *cycle {
	return &cycle{
		fleet: f, pending: f.bound(pending), opts: opts,
		editor:    editor{owner: &owner{}, names: &f.names},
		librarian: editor{owner: &owner{}, names: &f.names, wide: true},
		groups:    map[string]*group{},
	}
}

// load returns what is used of a node, to be read.
func (y *cycle) load(slot int32) *load {
	if y.loads != nil {
		if p := y.loads[slot>>loadShift]; p != nil {
			return &p[slot&(loadsPerPage-1)]
		}
	}
	return &y.fleet.loads[slot]
}

// ownLoad returns the cycle's own, to be changed.
func (y *cycle) ownLoad(slot int32) *load {
	if y.loads == nil {
		y.loads = make([]*loadPage, (len(y.fleet.loads)+loadsPerPage-1)>>loadShift)
	}
	p := &y.loads[slot>>loadShift]
	if *p == nil {
		*p = &loadPage{}
		copy((*p)[:], y.fleet.loads[slot>>loadShift<<loadShift:])
	}
	return &(*p)[slot&(loadsPerPage-1)]
}

// ownSlots yields the nodes that the cycle changed, and some beside them.
func (y *cycle) ownSlots(yield func(slot int32) bool) {
	for i, p := range y.loads {
		if p == nil {
			continue
		}
		for slot := i << loadShift; slot < min((i+1)<<loadShift, len(y.fleet.loads)); slot++ {
			if !yield(int32(slot)) {
				return
			}
		}
	}
}

// tree returns the nodes of a class in an order, as they are now.
func (y *cycle) tree(order int, class int32) *top {
	if y.moved[order] < len(y.touched) {
		y.move(order)
	}
	if y.trees[order] == nil {
		return &y.fleet.catalog.trees[order][class]
	}
	return &y.trees[order][class]
}

// move brings the trees of an order up to what was placed.
func (y *cycle) move(order int) {
	if y.trees[order] == nil {
		y.trees[order] = slices.Clone(y.fleet.catalog.trees[order])
	}
	for _, slot := range y.touched[y.moved[order]:] {
		l := y.ownLoad(slot)
		if l.stale&(1<<order) == 0 {
			continue // it was touched more than once
		}
		l.stale &^= 1 << order
		t := &y.trees[order][l.class]
		root := y.editor.remove(t.page, l.at[order], slot)
		l.at[order] = l.key[order]
		*t = topOf(y.editor.insert(root, entry{key: l.key[order], slot: slot, free: l.free()}))
	}
	y.moved[order] = len(y.touched)
}

// place charges a task of the class to the node.
func (y *cycle) place(c *class, slot int32, pending int) Placement {
	p := &y.pending[pending]
	l := y.ownLoad(slot)
	l.used = l.used.Add(c.demand)
	l.tasks++
	y.count1(c, slot, 1)
	y.touch(l, slot)
	pl := Placement{Pending: pending, Task: p.Task, Node: y.fleet.name(slot)}
	if len(c.requests) > 0 {
		uses := y.devicesFor(c, slot)
		y.useDevices(slot, uses, 1)
		pl.Devices = uses
	}
	if len(p.Ports) > 0 {
		pl.Ports = y.ownPorts(slot).assign(p)
	}
	return pl
}

// touch notes that what is used of a node has changed.
func (y *cycle) touch(l *load, slot int32) {
	y.fleet.catalog.rekey(l)
	l.stale = 1<<orders - 1 | offShelf
	y.touched = append(y.touched, slot)
	l.turn = int32(len(y.touched))
}

// count1 counts a task of the class in, or out, wherever it is counted.
func (y *cycle) count1(c *class, slot, tasks int32) {
	if g := c.group; g.apart {
		if g.placed == nil {
			g.placed = map[int32]int32{}
		}
		g.placed[slot] += tasks
		if g.counts != nil {
			g.counts[slot] += tasks
		}
		for _, v := range g.views { // order-free: each for itself
			y.countIn(v, slot, tasks)
		}
	}
	for _, v := range c.counts {
		y.countIn(v, slot, tasks)
	}
}

// countIn counts tasks in a view. Where that changes what other nodes say, they are touched, too.
func (y *cycle) countIn(v *view, slot, tasks int32) {
	v.add(y, slot, tasks)
	if v.fine == "" {
		return
	}
	for _, peer := range y.peers(v.fine, slot) {
		if peer != slot {
			y.touch(y.ownLoad(peer), peer)
		}
	}
}

// leave notes that a task of the class is decided, and takes back what the class no longer needs.
func (y *cycle) leave(c *class) {
	c.left--
	c.group.left--
	if (c.left == 0 || c.full) && c.ranking != nil {
		y.spareRank = append(y.spareRank, c.ranking)
		c.ranking = nil
	}
	// Of a strict group that could not be placed the counts tell why.
	if g := c.group; g.left == 0 && g.counts != nil && !g.strict {
		y.spareCounts = append(y.spareCounts, g.counts)
		g.counts = nil
	}
}

func (y *cycle) node(slot int32) *Node { return &y.fleet.slots[slot].node }

// portsOf returns the ports taken on the node, to be read.
func (y *cycle) portsOf(slot int32) *portSet {
	if own, found := y.ports[slot]; found {
		return own
	}
	return y.fleet.slots[slot].ports
}

// ownPorts returns the cycle's own set of the ports taken on the node, to be changed.
func (y *cycle) ownPorts(slot int32) *portSet {
	own, found := y.ports[slot]
	if !found {
		if own = y.fleet.slots[slot].ports.clone(); own == nil {
			own = &portSet{}
		}
		if y.ports == nil {
			y.ports = map[int32]*portSet{}
		}
		y.ports[slot] = own
	}
	return own
}

// shapeShares returns what the demand adds to how full a node is, by shape.
func (y *cycle) shapeShares(demand cluster.Demand) []shares {
	if y.more == nil || demand != y.amount {
		y.more = slices.Grow(y.more[:0], len(y.fleet.catalog.shapes))
		for _, shape := range y.fleet.catalog.shapes {
			y.more = append(y.more, sharesOf(demand, shape))
		}
		y.amount = demand
	}
	return y.more
}

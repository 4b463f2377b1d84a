package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// cycle is the state of one call of Schedule: the fleet, and the changes that the cycle's placements make to it.
type cycle struct {
	fleet   *Fleet
	pending []cluster.Pending
	order   []int32 // indices into pending, in the order of decision
	opts    Options

	placed        []Placement
	placedAt      []placedTask
	gangWaiting   map[int32]cluster.Waiting // by position in order; only members of gangs
	undoCount     int                       // counts how often a placement or a promise was undone
	promisedRooms map[int32]*promisedRoom   // by position in order

	loads         []*loadPage // copies of the pages that the cycle changed; nil pages are as in the fleet
	ports         map[int32]*portSet
	devices       map[int32]deviceUses
	deviceGroups  map[int32][]deviceGroup // of the nodes in devices
	tentative     []deviceGroup           // free devices during a tentative allocation, see allocateByValue
	tentativeUses []tentativeUse
	// valuedNodeClasses says, by node class, whether it has devices that the value model knows; nil until first used.
	valuedNodeClasses []bool
	touched           []int32 // nodes in the order in which their usage changed
	// trees are copies of the fleet's trees, by node class, once the cycle changed them. nodeTreesSeen is how much of
	// touched they contain.
	trees           [orders][]nodeTree
	nodeTreesSeen   [orders]int
	nodeIndexEditor indexEditor
	// deviceClasses is the fleet's until the cycle changes it; deviceClassesSeen is how much of touched it contains.
	// deviceFits caches results by the device requests.
	deviceClasses     *deviceClasses
	deviceFits        map[string]*deviceFits
	deviceIndexEditor indexEditor
	singleUseHeap     candidateHeap // for task classes that search only once
	deviceNodeClasses []int32       // scratch: node classes that are searched by devices
	nodeClassTiers    []uint64      // scratch: tiers of the feasible node classes
	deviceClassesSeen int

	groups      map[string]*group // by the name that tasksOf returns
	taskClassAt []*taskClass      // by position in order
	taskClasses []*taskClass
	tables      map[string]*valueTable // by attribute
	// relationViews count the tasks that relations select; exclusionViews the tasks that exclude others. Both are by
	// relationKey.
	relationViews, exclusionViews map[string]*relationView

	filters        map[string]*feasibilityFilter
	buffer         []byte
	shapeAdditions []shares // what shapeDemand adds to the fill, by shape
	shapeDemand    cluster.Demand
	spareRank      []*ranking
	// spareCounts are counts of finished groups, for reuse.
	spareCounts [][]int32
}

// loadPage holds the cycle's own copies of consecutive loads.
type loadPage [loadsPerPage]load

const (
	loadShift    = 5
	loadsPerPage = 1 << loadShift
)

func newCycle(f *Fleet, pending []cluster.Pending, opts Options) *cycle {
	return &cycle{
		fleet: f, pending: f.withVolumeConstraints(pending), opts: opts,
		nodeIndexEditor:   indexEditor{owner: &pageOwner{}, names: &f.names},
		deviceIndexEditor: indexEditor{owner: &pageOwner{}, names: &f.names, withSpans: true},
		groups:            map[string]*group{},
	}
}

// load returns the load of a node, for reading.
func (y *cycle) load(slot int32) *load {
	if y.loads != nil {
		if p := y.loads[slot>>loadShift]; p != nil {
			return &p[slot&(loadsPerPage-1)]
		}
	}
	return &y.fleet.loads[slot]
}

// ownLoad returns the cycle's copy of the load of a node, for changing.
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

// ownSlots yields the nodes that the cycle changed, and others on the same pages.
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

// tree returns the current tree of a node class in an order.
func (y *cycle) tree(order int, class int32) *nodeTree {
	if y.nodeTreesSeen[order] < len(y.touched) {
		y.updateNodeTrees(order)
	}
	if y.trees[order] == nil {
		return &y.fleet.catalog.trees[order][class]
	}
	return &y.trees[order][class]
}

// updateNodeTrees moves the nodes in touched to their current places in the trees of an order.
func (y *cycle) updateNodeTrees(order int) {
	if y.trees[order] == nil {
		y.trees[order] = slices.Clone(y.fleet.catalog.trees[order])
	}
	for _, slot := range y.touched[y.nodeTreesSeen[order]:] {
		l := y.ownLoad(slot)
		if l.stale&(1<<order) == 0 {
			continue // an earlier entry in touched moved it already
		}
		l.stale &^= 1 << order
		t := &y.trees[order][l.class]
		root := y.nodeIndexEditor.remove(t.page, l.at[order], slot)
		l.at[order] = l.key[order]
		*t = nodeTreeOf(y.nodeIndexEditor.insert(root, entry{key: l.key[order], slot: slot, free: l.free()}))
	}
	y.nodeTreesSeen[order] = len(y.touched)
}

// place charges a task of the class to the node, and chooses its devices and ports.
func (y *cycle) place(c *taskClass, slot int32, pending int) Placement {
	p := &y.pending[pending]
	l := y.ownLoad(slot)
	l.used = l.used.Add(c.demand)
	l.tasks++
	y.countTask(c, slot, 1)
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

// touch notes that the usage of a node changed.
func (y *cycle) touch(l *load, slot int32) {
	y.fleet.catalog.rekey(l)
	l.stale = 1<<orders - 1 | staleDeviceClass
	y.touched = append(y.touched, slot)
	l.turn = int32(len(y.touched))
}

// countTask adds tasks of the class to all views and groups that count them; a negative number removes them.
func (y *cycle) countTask(c *taskClass, slot, tasks int32) {
	if g := c.group; g.isCounted {
		if g.placed == nil {
			g.placed = map[int32]int32{}
		}
		g.placed[slot] += tasks
		if g.counts != nil {
			g.counts[slot] += tasks
		}
		for _, v := range g.views { // order-free: each for itself
			y.countInView(v, slot, tasks)
		}
	}
	for _, v := range c.counts {
		y.countInView(v, slot, tasks)
	}
}

// countInView adds tasks to a view. Where the view is by fine label, the other nodes with the same value change, too.
func (y *cycle) countInView(v *view, slot, tasks int32) {
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

// finishTask notes that a task of the class is decided, and keeps what its class and group no longer need for reuse.
func (y *cycle) finishTask(c *taskClass) {
	c.left--
	c.group.left--
	if (c.left == 0 || c.isFull) && c.ranking != nil {
		y.spareRank = append(y.spareRank, c.ranking)
		c.ranking = nil
	}
	// The counts of a group with required anti-affinity are kept: refusals are explained by them.
	if g := c.group; g.left == 0 && g.counts != nil && !g.hasDemand {
		y.spareCounts = append(y.spareCounts, g.counts)
		g.counts = nil
	}
}

func (y *cycle) node(slot int32) *Node { return &y.fleet.slots[slot].node }

// portsOf returns the ports taken on the node, for reading.
func (y *cycle) portsOf(slot int32) *portSet {
	if own, found := y.ports[slot]; found {
		return own
	}
	return y.fleet.slots[slot].ports
}

// ownPorts returns the cycle's copy of the ports taken on the node, for changing.
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

// shapeShares returns what the demand adds to the fill of a node, by shape.
func (y *cycle) shapeShares(demand cluster.Demand) []shares {
	if y.shapeAdditions == nil || demand != y.shapeDemand {
		y.shapeAdditions = slices.Grow(y.shapeAdditions[:0], len(y.fleet.catalog.shapes))
		for _, shape := range y.fleet.catalog.shapes {
			y.shapeAdditions = append(y.shapeAdditions, sharesOf(demand, shape))
		}
		y.shapeDemand = demand
	}
	return y.shapeAdditions
}

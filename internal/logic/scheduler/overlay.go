package scheduler

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// overlay is a copy-on-write view of a fleet. A cycle charges its placements to an overlay, and the fleet stays as it
// is. What the overlay holds is its own copy; what it does not hold is as in the fleet. Every node with another usage
// than in the fleet is in touched. Trees and device classes follow touched only when they are asked for.
type overlay struct {
	fleet     *Fleet
	touched   []int32 // nodes in the order in which their usage changed
	undoCount int     // counts how often a placement or a promise was undone

	loads   []*loadPage // copies of the pages that changed; nil pages are as in the fleet
	ports   map[int32]*portSet
	devices map[int32]ownDevices
	// trees are copies of the fleet's trees, by node class, once they changed. nodeTreesSeen is how much of touched
	// they contain.
	trees           [orders][]nodeTree
	nodeTreesSeen   [orders]int
	nodeIndexEditor indexEditor
	// deviceClasses is the fleet's until the first change; deviceClassesSeen is how much of touched it contains.
	deviceClasses     *deviceClasses
	deviceClassesSeen int
	deviceIndexEditor indexEditor

	buffer         []byte   // scratch for keys
	shapeAdditions []shares // what shapeDemand adds to the fill, by shape
	shapeDemand    cluster.Demand
}

// ownDevices is what an overlay's placements use of a node's devices, and what is free of each.
type ownDevices struct {
	used   deviceUses
	groups []deviceGroup
}

func newOverlay(f *Fleet) overlay {
	return overlay{
		fleet:             f,
		nodeIndexEditor:   indexEditor{owner: &pageOwner{}, names: &f.names},
		deviceIndexEditor: indexEditor{owner: &pageOwner{}, names: &f.names, withSpans: true},
	}
}

// loadPage holds the cycle's own copies of consecutive loads.
type loadPage [loadsPerPage]load

const (
	loadShift    = 5
	loadsPerPage = 1 << loadShift
)

// load returns the load of a node, for reading.
func (o *overlay) load(slot int32) *load {
	if o.loads != nil {
		if p := o.loads[slot>>loadShift]; p != nil {
			return &p[slot&(loadsPerPage-1)]
		}
	}
	return &o.fleet.loads[slot]
}

// ownLoad returns the cycle's copy of the load of a node, for changing.
func (o *overlay) ownLoad(slot int32) *load {
	if o.loads == nil {
		o.loads = make([]*loadPage, (len(o.fleet.loads)+loadsPerPage-1)>>loadShift)
	}
	p := &o.loads[slot>>loadShift]
	if *p == nil {
		*p = &loadPage{}
		copy((*p)[:], o.fleet.loads[slot>>loadShift<<loadShift:])
	}
	return &(*p)[slot&(loadsPerPage-1)]
}

// ownSlots yields the nodes that the cycle changed, and others on the same pages.
func (o *overlay) ownSlots(yield func(slot int32) bool) {
	for i, p := range o.loads {
		if p == nil {
			continue
		}
		for slot := i << loadShift; slot < min((i+1)<<loadShift, len(o.fleet.loads)); slot++ {
			if !yield(int32(slot)) {
				return
			}
		}
	}
}

func (o *overlay) node(slot int32) *Node { return &o.fleet.slots[slot].node }

// touch notes that the usage of a node changed.
func (o *overlay) touch(l *load, slot int32) {
	o.fleet.catalog.rekey(l)
	l.stale = 1<<orders - 1 | staleDeviceClass
	o.touched = append(o.touched, slot)
	l.turn = int32(len(o.touched))
}

// tree returns the current tree of a node class in an order.
func (o *overlay) tree(order int, class int32) *nodeTree {
	if o.nodeTreesSeen[order] < len(o.touched) {
		o.updateNodeTrees(order)
	}
	if o.trees[order] == nil {
		return &o.fleet.catalog.trees[order][class]
	}
	return &o.trees[order][class]
}

// updateNodeTrees moves the nodes in touched to their current places in the trees of an order.
func (o *overlay) updateNodeTrees(order int) {
	if o.trees[order] == nil {
		o.trees[order] = slices.Clone(o.fleet.catalog.trees[order])
	}
	for _, slot := range o.touched[o.nodeTreesSeen[order]:] {
		l := o.ownLoad(slot)
		if l.stale&(1<<order) == 0 {
			continue // an earlier entry in touched moved it already
		}
		l.stale &^= 1 << order
		t := &o.trees[order][l.class]
		root := o.nodeIndexEditor.remove(t.page, l.at[order], slot)
		l.at[order] = l.key[order]
		*t = nodeTreeOf(o.nodeIndexEditor.insert(root, entry{key: l.key[order], slot: slot, free: l.free()}))
	}
	o.nodeTreesSeen[order] = len(o.touched)
}

// currentDeviceClasses returns the device classes after the cycle's placements so far.
func (o *overlay) currentDeviceClasses() *deviceClasses {
	base := &o.fleet.catalog.deviceClasses
	if o.deviceClassesSeen == len(o.touched) {
		return cmp.Or(o.deviceClasses, base)
	}
	if o.deviceClasses == nil {
		o.deviceClasses = &deviceClasses{
			list: slices.Clone(base.list), byKey: map[string]int32{}, fleetByKey: base.byKey,
		}
	}
	for _, slot := range o.touched[o.deviceClassesSeen:] {
		l := o.ownLoad(slot)
		if l.stale&staleDeviceClass == 0 || l.deviceClass < 0 {
			continue
		}
		l.stale &^= staleDeviceClass
		to := l.deviceClass
		if own, found := o.devices[slot]; found {
			shape := o.fleet.catalog.classes[l.class].shape
			o.buffer = appendNumber(o.buffer[:0], uint64(shape))
			o.buffer = appendDeviceClassKey(o.buffer, o.node(slot).Devices, own.groups, own.used)
			to = o.deviceClasses.findOrAdd(o.buffer, shape)
		}
		o.deviceClasses.list[l.deviceClass].remove(o.deviceIndexEditor, l.deviceClassKey, slot)
		en := o.fleet.catalog.deviceClassEntry(l, slot)
		l.deviceClass, l.deviceClassKey = to, en.key
		o.deviceClasses.list[to].insert(o.deviceIndexEditor, en)
	}
	o.deviceClassesSeen = len(o.touched)
	return o.deviceClasses
}

// portsOf returns the ports taken on the node, for reading.
func (o *overlay) portsOf(slot int32) *portSet {
	if own, found := o.ports[slot]; found {
		return own
	}
	return o.fleet.slots[slot].ports
}

// ownPorts returns the cycle's copy of the ports taken on the node, for changing.
func (o *overlay) ownPorts(slot int32) *portSet {
	own, found := o.ports[slot]
	if !found {
		if own = o.fleet.slots[slot].ports.clone(); own == nil {
			own = &portSet{}
		}
		if o.ports == nil {
			o.ports = map[int32]*portSet{}
		}
		o.ports[slot] = own
	}
	return own
}

// devicesOf returns what is used of a node's devices, for reading.
func (o *overlay) devicesOf(slot int32) deviceUses {
	if own, found := o.devices[slot]; found {
		return own.used
	}
	return o.fleet.slots[slot].devices
}

// deviceGroupsOf returns a node's devices with what is free of each, for reading.
func (o *overlay) deviceGroupsOf(slot int32) []deviceGroup {
	if own, found := o.devices[slot]; found {
		return own.groups
	}
	return o.fleet.slots[slot].deviceGroups
}

// useDevices adds device uses to a node, or with a sign of -1 removes them.
func (o *overlay) useDevices(slot int32, uses []cluster.DeviceUse, sign int) {
	own, found := o.devices[slot]
	if !found {
		s := &o.fleet.slots[slot]
		own = ownDevices{slices.Clone(s.devices), copyDeviceGroups(nil, s.deviceGroups)}
	}
	for _, u := range uses {
		own.used = own.used.add(u, sign)
	}
	updateFreeDevices(own.groups, o.node(slot).Devices, own.used)
	if o.devices == nil {
		o.devices = map[int32]ownDevices{}
	}
	o.devices[slot] = own
}

// retainDevicePages lets the caller keep the present pages of the device classes: later changes copy them.
func (o *overlay) retainDevicePages() { o.deviceIndexEditor.owner = &pageOwner{} }

// shapeShares returns what the demand adds to the fill of a node, by shape.
func (o *overlay) shapeShares(demand cluster.Demand) []shares {
	if o.shapeAdditions == nil || demand != o.shapeDemand {
		o.shapeAdditions = slices.Grow(o.shapeAdditions[:0], len(o.fleet.catalog.shapes))
		for _, shape := range o.fleet.catalog.shapes {
			o.shapeAdditions = append(o.shapeAdditions, sharesOf(demand, shape))
		}
		o.shapeDemand = demand
	}
	return o.shapeAdditions
}

// slots returns the slots of the named nodes that the fleet has.
func (o *overlay) slots(names []string) (slots []int32) {
	for _, name := range names {
		if n, found := o.fleet.search(name); found && !slices.Contains(slots, n) {
			slots = append(slots, n)
		}
	}
	return slots
}

// nodesWith returns the nodes that have one of the values for a per-node attribute.
func (o *overlay) nodesWith(attribute string, values []string) (slots []int32) {
	if attribute == nodeName {
		return o.slots(values)
	}
	l := o.fleet.catalog.labels.fine(attribute)
	for i, value := range values {
		if !slices.Contains(values[:i], value) {
			slots = append(slots, l.at[value]...)
		}
	}
	return slots
}

// peers returns the nodes with the same value of a fine label as the node.
func (o *overlay) peers(attribute string, slot int32) []int32 {
	return o.fleet.catalog.labels.fine(attribute).at[o.node(slot).Value(attribute)]
}

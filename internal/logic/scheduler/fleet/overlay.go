package fleet

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/devices"
	"github.com/berthd/berth/internal/logic/scheduler/encode"
	"github.com/berthd/berth/internal/logic/scheduler/index"
)

// Overlay is a copy-on-write view of a fleet. A cycle charges its placements to an overlay, and the fleet stays as it
// is. The overlay holds own copies of changed entries; all other entries are those of the fleet. A caller that changes
// the usage of a node calls Touch. Trees and device classes follow the touched nodes only when they are used, so
// preemption, which uses neither, moves victims without it.
type Overlay struct {
	Fleet     *Fleet
	Touched   []int32 // nodes in the order in which their usage changed
	UndoCount int     // counts how often a placement or a promise was undone

	loads   []*loadPage // copies of the pages that changed; nil pages are as in the fleet
	ports   map[int32]*PortSet
	devices map[int32]ownDevices
	// trees are copies of the fleet's trees, by node class, once they changed. nodeTreesSeen is how much of Touched
	// they contain.
	trees           [orders][]index.Tree
	nodeTreesSeen   [orders]int
	nodeIndexEditor index.Editor
	// deviceClasses is the fleet's until the first change; deviceClassesSeen is how much of Touched it contains.
	deviceClasses     *DeviceClasses
	deviceClassesSeen int
	deviceIndexEditor index.Editor

	Buffer         []byte         // scratch for keys
	shapeAdditions []index.Shares // what shapeDemand adds to the fill, by shape
	shapeDemand    cluster.Demand
}

// ownDevices is what an overlay's placements use of a node's devices, and what is free of each.
type ownDevices struct {
	used   devices.Uses
	groups []devices.Group
}

// NewOverlay returns an overlay without placements. The fleet must not change while the overlay is in use.
func NewOverlay(f *Fleet) Overlay {
	return Overlay{
		Fleet:             f,
		nodeIndexEditor:   index.Editor{Owner: &index.Owner{}, Names: &f.Names},
		deviceIndexEditor: index.Editor{Owner: &index.Owner{}, Names: &f.Names, WithSpans: true},
	}
}

// loadPage holds the overlay's own copies of consecutive loads.
type loadPage [loadsPerPage]Load

const (
	loadShift    = 5
	loadsPerPage = 1 << loadShift
)

// Load returns the load of a node, for reading.
func (o *Overlay) Load(slot int32) *Load {
	if o.loads != nil {
		if p := o.loads[slot>>loadShift]; p != nil {
			return &p[slot&(loadsPerPage-1)]
		}
	}
	return &o.Fleet.loads[slot]
}

// OwnLoad returns the cycle's copy of the load of a node, for changing.
func (o *Overlay) OwnLoad(slot int32) *Load {
	if o.loads == nil {
		o.loads = make([]*loadPage, (len(o.Fleet.loads)+loadsPerPage-1)>>loadShift)
	}
	p := &o.loads[slot>>loadShift]
	if *p == nil {
		*p = &loadPage{}
		copy((*p)[:], o.Fleet.loads[slot>>loadShift<<loadShift:])
	}
	return &(*p)[slot&(loadsPerPage-1)]
}

// OwnSlots yields the nodes that the cycle changed, and others on the same pages.
func (o *Overlay) OwnSlots(yield func(slot int32) bool) {
	for i, p := range o.loads {
		if p == nil {
			continue
		}
		for slot := i << loadShift; slot < min((i+1)<<loadShift, len(o.Fleet.loads)); slot++ {
			if !yield(int32(slot)) {
				return
			}
		}
	}
}

// Node returns a node, for reading.
func (o *Overlay) Node(slot int32) *Node { return &o.Fleet.slots[slot].node }

// Touch notes that the usage of a node changed.
func (o *Overlay) Touch(l *Load, slot int32) {
	o.Fleet.Catalog.Rekey(l)
	l.stale = 1<<orders - 1 | staleDeviceClass
	o.Touched = append(o.Touched, slot)
	l.Turn = int32(len(o.Touched))
}

// Tree returns the current tree of a node class in an order.
func (o *Overlay) Tree(order int, class int32) *index.Tree {
	if o.nodeTreesSeen[order] < len(o.Touched) {
		o.updateNodeTrees(order)
	}
	if o.trees[order] == nil {
		return &o.Fleet.Catalog.Trees[order][class]
	}
	return &o.trees[order][class]
}

// updateNodeTrees moves the nodes in touched to their current places in the trees of an order.
func (o *Overlay) updateNodeTrees(order int) {
	if o.trees[order] == nil {
		o.trees[order] = slices.Clone(o.Fleet.Catalog.Trees[order])
	}
	for _, slot := range o.Touched[o.nodeTreesSeen[order]:] {
		l := o.OwnLoad(slot)
		if l.stale&(1<<order) == 0 {
			continue // an earlier entry in touched moved it already
		}
		l.stale &^= 1 << order
		t := &o.trees[order][l.Class]
		root := o.nodeIndexEditor.Remove(t.Page, l.at[order], slot)
		l.at[order] = l.Key[order]
		*t = index.TreeOf(o.nodeIndexEditor.Insert(root, index.Entry{Key: l.Key[order], Slot: slot, Free: l.Free()}))
	}
	o.nodeTreesSeen[order] = len(o.Touched)
}

// CurrentDeviceClasses returns the device classes after the cycle's placements so far.
func (o *Overlay) CurrentDeviceClasses() *DeviceClasses {
	base := &o.Fleet.Catalog.DeviceClasses
	if o.deviceClassesSeen == len(o.Touched) {
		return cmp.Or(o.deviceClasses, base)
	}
	if o.deviceClasses == nil {
		o.deviceClasses = &DeviceClasses{
			List: slices.Clone(base.List), byKey: map[string]int32{}, fleetByKey: base.byKey,
		}
	}
	for _, slot := range o.Touched[o.deviceClassesSeen:] {
		l := o.OwnLoad(slot)
		if l.stale&staleDeviceClass == 0 || l.DeviceClass < 0 {
			continue
		}
		l.stale &^= staleDeviceClass
		to := l.DeviceClass
		if own, found := o.devices[slot]; found {
			shape := o.Fleet.Catalog.Classes[l.Class].Shape
			o.Buffer = encode.Number(o.Buffer[:0], uint64(shape))
			o.Buffer = devices.AppendClassKey(o.Buffer, o.Node(slot).Devices, own.groups, own.used)
			to = o.deviceClasses.findOrAdd(o.Buffer, shape)
		}
		o.deviceClasses.List[l.DeviceClass].remove(o.deviceIndexEditor, l.deviceClassKey, slot)
		en := o.Fleet.Catalog.deviceClassEntry(l, slot)
		l.DeviceClass, l.deviceClassKey = to, en.Key
		o.deviceClasses.List[to].insert(o.deviceIndexEditor, en)
	}
	o.deviceClassesSeen = len(o.Touched)
	return o.deviceClasses
}

// PortsOf returns the ports taken on the node, for reading.
func (o *Overlay) PortsOf(slot int32) *PortSet {
	if own, found := o.ports[slot]; found {
		return own
	}
	return o.Fleet.slots[slot].ports
}

// OwnPorts returns the cycle's copy of the ports taken on the node, for changing.
func (o *Overlay) OwnPorts(slot int32) *PortSet {
	own, found := o.ports[slot]
	if !found {
		if own = o.Fleet.slots[slot].ports.clone(); own == nil {
			own = &PortSet{}
		}
		if o.ports == nil {
			o.ports = map[int32]*PortSet{}
		}
		o.ports[slot] = own
	}
	return own
}

// DevicesOf returns what is used of a node's devices, for reading.
func (o *Overlay) DevicesOf(slot int32) devices.Uses {
	if own, found := o.devices[slot]; found {
		return own.used
	}
	return o.Fleet.slots[slot].devices
}

// DeviceGroupsOf returns a node's devices with what is free of each, for reading.
func (o *Overlay) DeviceGroupsOf(slot int32) []devices.Group {
	if own, found := o.devices[slot]; found {
		return own.groups
	}
	return o.Fleet.slots[slot].deviceGroups
}

// UseDevices adds device uses to a node, or with a sign of -1 removes them.
func (o *Overlay) UseDevices(slot int32, uses []cluster.DeviceUse, sign int) {
	own, found := o.devices[slot]
	if !found {
		s := &o.Fleet.slots[slot]
		own = ownDevices{slices.Clone(s.devices), devices.CopyGroups(nil, s.deviceGroups)}
	}
	for _, u := range uses {
		own.used = own.used.Add(u, sign)
	}
	devices.UpdateFree(own.groups, o.Node(slot).Devices, own.used)
	if o.devices == nil {
		o.devices = map[int32]ownDevices{}
	}
	o.devices[slot] = own
}

// RetainDevicePages lets the caller keep the present pages of the device classes: later changes copy them.
func (o *Overlay) RetainDevicePages() { o.deviceIndexEditor.Owner = &index.Owner{} }

// ShapeShares returns what the demand adds to the fill of a node, by shape.
func (o *Overlay) ShapeShares(demand cluster.Demand) []index.Shares {
	if o.shapeAdditions == nil || demand != o.shapeDemand {
		o.shapeAdditions = slices.Grow(o.shapeAdditions[:0], len(o.Fleet.Catalog.Shapes))
		for _, shape := range o.Fleet.Catalog.Shapes {
			o.shapeAdditions = append(o.shapeAdditions, index.SharesOf(demand, shape))
		}
		o.shapeDemand = demand
	}
	return o.shapeAdditions
}

// Slots returns the slots of the named nodes that the fleet has.
func (o *Overlay) Slots(names []string) (slots []int32) {
	for _, name := range names {
		if n, found := o.Fleet.Search(name); found && !slices.Contains(slots, n) {
			slots = append(slots, n)
		}
	}
	return slots
}

// NodesWith returns the nodes that have one of the values for a per-node attribute.
func (o *Overlay) NodesWith(attribute string, values []string) (slots []int32) {
	if attribute == NodeName {
		return o.Slots(values)
	}
	l := o.Fleet.Catalog.Labels.Fine(attribute)
	for i, value := range values {
		if !slices.Contains(values[:i], value) {
			slots = append(slots, l.At[value]...)
		}
	}
	return slots
}

// Peers returns the nodes with the same value of a fine label as the node.
func (o *Overlay) Peers(attribute string, slot int32) []int32 {
	return o.Fleet.Catalog.Labels.Fine(attribute).At[o.Node(slot).Value(attribute)]
}

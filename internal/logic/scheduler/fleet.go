package scheduler

import (
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// Fleet is the nodes of one domain with their reservations. Its owner calls the methods that change it. Between these
// calls, several readers may use it at once.
type Fleet struct {
	slots  []slot
	loads  []load // by slot
	byName map[string]int32
	names  names   // of the nodes that are set
	vacant []int32 // slots to be reused
	// nodeReservations is the number of the operator's reservations on the nodes that are set.
	nodeReservations int
	catalog          catalog
	held             map[string]Reservation
	reservedGroups   reservedGroups
	// relationIndex counts the same reservations for relations.
	relationIndex relationIndex
	images        nodesByName // of the nodes that are set
	volumes       volumeIndex // of the nodes that are set
	valueModel    *ValueModel // nil if devices have no value
}

// slot is one node of a fleet. It exists while the node is set or something is reserved on it.
type slot struct {
	node  Node
	set   bool
	ports *portSet // nil if none is taken
	// devices is what is used, also of devices that the node no longer has.
	devices      deviceUses
	deviceGroups []deviceGroup // nil if the node is not set
}

// NewFleet returns a fleet without nodes.
func NewFleet() *Fleet {
	f := &Fleet{
		byName:         map[string]int32{},
		catalog:        newCatalog(),
		held:           map[string]Reservation{},
		reservedGroups: newReservedGroups(),

		relationIndex: newRelationIndex(),
		images:        nodesByName{},
		volumes:       newVolumeIndex(),
	}
	f.names.of = f.name
	f.catalog.editWith(&f.names)
	return f
}

// Reserved returns the reservation of an attempt.
func (f *Fleet) Reserved(uuid string) (Reservation, bool) {
	r, found := f.held[uuid]
	return r, found
}

// Reservations returns the number of reservations.
func (f *Fleet) Reservations() int { return len(f.held) }

// Held yields all reservations, in no order. The caller must not change the fleet meanwhile.
func (f *Fleet) Held(yield func(Reservation) bool) {
	for _, r := range f.held { // order-free: the caller sorts
		if !yield(r) {
			return
		}
	}
}

// Nodes returns the names of the nodes in order.
func (f *Fleet) Nodes() []string {
	names := make([]string, 0, f.names.count)
	for i := range f.names.all {
		names = append(names, f.name(i))
	}
	return names
}

// Node returns a node and its usage.
func (f *Fleet) Node(name string) (n Node, used cluster.Demand, found bool) {
	i, found := f.search(name)
	if !found {
		return Node{}, cluster.Demand{}, false
	}
	return f.slots[i].node, f.loads[i].used, true
}

func (f *Fleet) name(i int32) string { return f.slots[i].node.Name }

// Clone returns an independent copy of the fleet, for what-if questions.
func (f *Fleet) Clone() *Fleet {
	c := &Fleet{
		slots:            slices.Clone(f.slots),
		loads:            slices.Clone(f.loads),
		byName:           maps.Clone(f.byName),
		vacant:           slices.Clone(f.vacant),
		catalog:          f.catalog.clone(),
		nodeReservations: f.nodeReservations,
		held:             maps.Clone(f.held),
		reservedGroups:   f.reservedGroups.clone(),

		relationIndex: f.relationIndex.clone(),
		images:        f.images.clone(),
		volumes:       f.volumes.clone(),
		valueModel:    f.valueModel,
	}
	c.names = f.names.clone(c.name)
	c.catalog.editWith(&c.names)
	for i := range c.slots {
		c.slots[i].ports = c.slots[i].ports.clone()
		c.slots[i].devices = slices.Clone(c.slots[i].devices)
		if groups := c.slots[i].deviceGroups; groups != nil {
			c.slots[i].deviceGroups = copyDeviceGroups(nil, groups)
		}
	}
	return c
}

// search finds the slot of a node that is set.
func (f *Fleet) search(name string) (slot int32, found bool) {
	i, found := f.byName[name]
	return i, found && f.slots[i].set
}

// slot returns the slot of that name, and adds one if there is none.
func (f *Fleet) slot(name string) int32 {
	if i, found := f.byName[name]; found {
		return i
	}
	var i int32
	if last := len(f.vacant) - 1; last >= 0 {
		i, f.vacant = f.vacant[last], f.vacant[:last]
	} else {
		i = int32(len(f.slots))
		f.slots = append(f.slots, slot{})
		f.loads = append(f.loads, load{})
		f.names.order = append(f.names.order, 0)
	}
	f.slots[i] = slot{node: Node{Name: name}}
	f.loads[i] = load{class: -1, deviceClass: -1}
	f.byName[name] = i
	return i
}

// slotNamed returns the slot of a node that is set or has reservations.
func (f *Fleet) slotNamed(name string) int32 { return f.byName[name] }

// slotCount returns the number of slots: all slots are below it.
func (f *Fleet) slotCount() int { return len(f.slots) }

// classOf returns the node class of a slot, or -1 if its node is not set.
func (f *Fleet) classOf(slot int32) int32 { return f.loads[slot].class }

// vacate frees the slot if its node is not set and nothing is reserved there.
func (f *Fleet) vacate(i int32) {
	if f.slots[i].set || f.loads[i].tasks > 0 {
		return
	}
	delete(f.byName, f.slots[i].node.Name)
	f.slots[i], f.loads[i] = slot{}, load{class: -1, deviceClass: -1}
	f.vacant = append(f.vacant, i)
}

// Package fleet holds the nodes of a domain with the reservations on them, and the indexes that a scheduler searches:
//
//   - node classes: nodes that are equal in all that a task may ask about, each class with trees of its nodes
//   - device classes: nodes with equal capacity, equal devices and equal free devices
//   - the values of labels, and the nodes that have images, volumes and copies
//   - the reservations by anti-affinity group, and by what relations select
//
// A Fleet changes in place. An Overlay is a fleet with the placements of one cycle, and leaves the fleet as it is.
// Readers in other packages must not change what they get from a Fleet.
//
// # Device classes
//
// A device class's tree follows Hilbert's curve through the plane of used CPU and used memory, 512 by 512 cells, and
// fill within a cell, so a page of any height is a small part of the plane. Cost bounds come from the steps of the
// value tables: the loss is linear between steps but for rounding. For a task and a class of more than one page, the
// least of each step is computed once, in about 10 ns a step. Where nothing is short the bound is exact; otherwise all
// nodes of equal loss would have to be scanned. An order by balance opened some 300 of 4,500 leaves for a task among
// 100,000 nodes, and up to 1,000 for a small one: 2.7 ms instead of 0.12 ms.
//
// # Labels
//
// A label becomes coarse again at 128 values with more than 32 nodes to each. Over a label that splits no classes, `=`
// and `in` look up the nodes of each value, other constraints check nodes one by one, and spreads, distincts and
// relations count by node.
//
// # Size
//
// Each index is a type of its own. The methods of a Fleet are the questions of its readers, and the changes that all
// indexes must follow together.
package fleet

import (
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
	"github.com/berthd/berth/internal/logic/scheduler/devices"
	"github.com/berthd/berth/internal/logic/scheduler/index"
)

// Fleet is the nodes of one domain with their reservations. Its owner calls the methods that change it. Between these
// calls, several readers may use it concurrently.
type Fleet struct {
	slots  []slot
	loads  []Load // by slot
	byName map[string]int32
	Names  index.Names // of the nodes that are set
	vacant []int32     // slots to be reused
	// NodeReservations is the number of the operator's reservations on the nodes that are set.
	NodeReservations int
	Catalog          Catalog
	held             map[string]Reservation
	ReservedGroups   ReservedGroups
	// RelationIndex counts the same reservations for relations.
	RelationIndex RelationIndex
	Images        nodesByName         // of the nodes that are set
	Volumes       VolumeIndex         // of the nodes that are set
	valueModel    *devices.ValueModel // nil if devices have no value
	// Limits counts what the reservations hold of the limits of their clusters.
	Limits admission.Ledger
	runs   runs
	kept   map[cluster.OwnerRef]KeptRoom
}

// slot is one node of a fleet. It exists while the node is set or something is reserved on it.
type slot struct {
	node  Node
	set   bool
	ports *PortSet // nil if none is taken
	// devices is what is used, also of devices that the node no longer has.
	devices      devices.Uses
	deviceGroups []devices.Group // nil if the node is not set
	// keepers are the services that keep room with devices here, in the order of their names. Clones share the slice.
	keepers []cluster.OwnerRef
}

// New returns a fleet without nodes.
func New() *Fleet {
	f := &Fleet{
		byName:         map[string]int32{},
		Catalog:        newCatalog(),
		held:           map[string]Reservation{},
		ReservedGroups: newReservedGroups(),

		RelationIndex: newRelationIndex(),
		Images:        nodesByName{},
		Volumes:       newVolumeIndex(),
		runs:          newRuns(),
	}
	f.Names.Of = f.Name
	f.Catalog.editWith(&f.Names)
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
	names := make([]string, 0, f.Names.Count)
	for i := range f.Names.All {
		names = append(names, f.Name(i))
	}
	return names
}

// Node returns a node and its usage.
func (f *Fleet) Node(name string) (n Node, used cluster.Demand, found bool) {
	i, found := f.Search(name)
	if !found {
		return Node{}, cluster.Demand{}, false
	}
	return f.slots[i].node, f.loads[i].Used, true
}

// Name returns the name of a slot's node.
func (f *Fleet) Name(i int32) string { return f.slots[i].node.Name }

// Clone returns an independent copy of the fleet, for what-if questions.
func (f *Fleet) Clone() *Fleet {
	c := &Fleet{
		slots:            slices.Clone(f.slots),
		loads:            slices.Clone(f.loads),
		byName:           maps.Clone(f.byName),
		vacant:           slices.Clone(f.vacant),
		Catalog:          f.Catalog.clone(),
		NodeReservations: f.NodeReservations,
		held:             maps.Clone(f.held),
		ReservedGroups:   f.ReservedGroups.clone(),

		RelationIndex: f.RelationIndex.clone(),
		Images:        f.Images.clone(),
		Volumes:       f.Volumes.clone(),
		valueModel:    f.valueModel,
		Limits:        f.Limits.Clone(),
		runs:          f.runs.clone(),
		kept:          maps.Clone(f.kept),
	}
	c.Names = f.Names.Clone(c.Name)
	c.Catalog.editWith(&c.Names)
	for i := range c.slots {
		c.slots[i].ports = c.slots[i].ports.clone()
		c.slots[i].devices = slices.Clone(c.slots[i].devices)
		if groups := c.slots[i].deviceGroups; groups != nil {
			c.slots[i].deviceGroups = devices.CopyGroups(nil, groups)
		}
	}
	return c
}

// Search finds the slot of a node that is set.
func (f *Fleet) Search(name string) (slot int32, found bool) {
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
		f.loads = append(f.loads, Load{})
		f.Names.Order = append(f.Names.Order, 0)
	}
	f.slots[i] = slot{node: Node{Name: name}}
	f.loads[i] = Load{Class: -1, DeviceClass: -1}
	f.byName[name] = i
	return i
}

// SlotNamed returns the slot of a node that is set or has reservations.
func (f *Fleet) SlotNamed(name string) int32 { return f.byName[name] }

// SlotCount returns the number of slots: all slots are below it.
func (f *Fleet) SlotCount() int { return len(f.slots) }

// ClassOf returns the node class of a slot, or -1 if its node is not set.
func (f *Fleet) ClassOf(slot int32) int32 { return f.loads[slot].Class }

// vacate frees the slot if its node is not set and nothing is reserved there.
func (f *Fleet) vacate(i int32) {
	if f.slots[i].set || f.loads[i].Tasks > 0 {
		return
	}
	delete(f.byName, f.slots[i].node.Name)
	f.slots[i], f.loads[i] = slot{}, Load{Class: -1, DeviceClass: -1}
	f.vacant = append(f.vacant, i)
}

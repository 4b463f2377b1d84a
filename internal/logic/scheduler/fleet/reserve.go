package fleet

import (
	"maps"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/index"
)

// Grow makes room for that many reservations in all, which speeds up filling a fleet. It changes nothing else.
func (f *Fleet) Grow(reservations int) {
	held := make(map[string]Reservation, max(reservations, len(f.held)))
	maps.Copy(held, f.held)
	f.held = held
}

// Reserve charges an attempt to its node, which need not be set yet. It replaces a reservation with the same UUID. The
// fleet keeps r's slices and map.
func (f *Fleet) Reserve(r Reservation) {
	f.Release(r.UUID)
	r.Demand = index.Clamp(r.Demand)
	f.held[r.UUID] = r
	i := f.slot(r.Node)
	f.useDevices(i, r.Devices, 1)
	f.charge(i, f.loads[i].Used.Add(r.Demand), 1, len(r.Devices) > 0)
	for _, p := range r.Ports {
		f.ports(i).Add(p)
	}
	f.ReservedGroups.add(&r, i)
	f.RelationIndex.add(&r, i, 1)
	holding := r.Holding()
	f.Limits.Add(&holding, 1)
	if r.Batch {
		f.runs.add(&r, i)
	}
}

// Release removes the reservation of an attempt. An unknown UUID is no error.
func (f *Fleet) Release(uuid string) {
	r, found := f.held[uuid]
	if !found {
		return
	}
	delete(f.held, uuid)
	f.runs.remove(uuid)
	i := f.byName[r.Node]
	f.useDevices(i, r.Devices, -1)
	f.charge(i, f.loads[i].Used.Sub(r.Demand), -1, len(r.Devices) > 0)
	for _, p := range r.Ports {
		f.ports(i).Remove(p)
	}
	f.ReservedGroups.remove(&r, i)
	f.RelationIndex.add(&r, i, -1)
	holding := r.Holding()
	f.Limits.Add(&holding, -1)
	f.vacate(i)
}

// charge sets the usage of a node. If devices is true, the caller has changed the device usage already.
func (f *Fleet) charge(i int32, used cluster.Demand, tasks int32, devices bool) {
	l := &f.loads[i]
	l.Used, l.Tasks = used, l.Tasks+tasks
	if l.Class < 0 {
		return
	}
	f.Catalog.Rekey(l)
	for order := range orders {
		f.Catalog.removeFromTree(order, l, i)
		f.Catalog.addToTree(order, l, i)
	}
	f.Catalog.updateDeviceClass(&f.slots[i], l, i, devices)
}

// useDevices adds device uses to a node, or with a sign of -1 removes them.
func (f *Fleet) useDevices(i int32, uses []cluster.DeviceUse, sign int) {
	if len(uses) == 0 {
		return
	}
	f.changeDevices(i, func() {
		s := &f.slots[i]
		for _, u := range uses {
			s.devices = s.devices.Add(u, sign)
		}
	})
}

// ports returns the set of the ports taken on a node, for changing.
func (f *Fleet) ports(i int32) *PortSet {
	s := &f.slots[i]
	if s.ports == nil {
		s.ports = &PortSet{}
	}
	return s.ports
}

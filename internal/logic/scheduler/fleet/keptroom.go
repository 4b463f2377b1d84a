package fleet

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/devices"
	"github.com/berthd/berth/internal/logic/scheduler/index"
)

// KeptRoom is the room that a service keeps on its node while it runs no task there. It counts against the capacity of
// the node and nowhere else: it is no task.
type KeptRoom struct {
	Owner  cluster.OwnerRef
	Node   string
	Demand cluster.Demand
	// Ports are the fixed ports of its task.
	Ports []int
	// Devices are the requests of its task. The fleet holds devices that meet them, as far as such are free.
	Devices []cluster.DeviceRequest
	held    []cluster.DeviceUse
}

// Equal reports whether two services keep the same room.
func (k *KeptRoom) Equal(o *KeptRoom) bool {
	return k.Owner == o.Owner && k.Node == o.Node && index.Clamp(k.Demand) == index.Clamp(o.Demand) &&
		slices.Equal(k.Ports, o.Ports) && slices.EqualFunc(k.Devices, o.Devices, devices.SameRequest)
}

// Held returns the devices that the fleet held for the service when it returned this room.
func (k *KeptRoom) Held() []cluster.DeviceUse { return k.held }

// Keep charges the room of a service to its node, which need not be set yet. It replaces what the service kept before.
//
// The devices of a node that meet a request are equal for a task. So the fleet chooses the held devices anew whenever
// the devices of the node, or the reservations of them, change: a task that was placed on a held device stays there.
func (f *Fleet) Keep(k KeptRoom) {
	f.EndKeep(k.Owner)
	k.Demand, k.held = index.Clamp(k.Demand), nil
	if f.kept == nil {
		f.kept = map[cluster.OwnerRef]KeptRoom{}
	}
	f.kept[k.Owner] = k
	i := f.slot(k.Node)
	if len(k.Devices) > 0 {
		s := &f.slots[i]
		at, _ := slices.BinarySearchFunc(s.keepers, k.Owner, compareOwners)
		s.keepers = slices.Insert(slices.Clip(s.keepers), at, k.Owner)
		f.changeDevices(i, func() {})
	}
	f.charge(i, f.loads[i].Used.Add(k.Demand), 1, len(k.Devices) > 0)
	for _, p := range k.Ports {
		f.ports(i).Add(p)
	}
}

// EndKeep releases the room of a service, and returns it. It is false for a service that keeps none.
func (f *Fleet) EndKeep(o cluster.OwnerRef) (KeptRoom, bool) {
	k, found := f.kept[o]
	if !found {
		return KeptRoom{}, false
	}
	i := f.byName[k.Node]
	if len(k.Devices) > 0 {
		f.changeDevices(i, func() {
			s := &f.slots[i]
			s.keepers = slices.DeleteFunc(slices.Clone(s.keepers), func(k cluster.OwnerRef) bool { return k == o })
		})
	}
	delete(f.kept, o)
	f.charge(i, f.loads[i].Used.Sub(k.Demand), -1, len(k.Devices) > 0)
	for _, p := range k.Ports {
		f.ports(i).Remove(p)
	}
	f.vacate(i)
	return k, true
}

// Kept returns the room that a service keeps.
func (f *Fleet) Kept(o cluster.OwnerRef) (KeptRoom, bool) {
	k, found := f.kept[o]
	return k, found
}

// KeepsRoom reports whether any service keeps room.
func (f *Fleet) KeepsRoom() bool { return len(f.kept) > 0 }

// changeDevices calls change, which changes the devices of a node or their uses, while services hold none there. Then
// it holds devices for them again, for one service after the other in the order of their names.
func (f *Fleet) changeDevices(i int32, change func()) {
	s := &f.slots[i]
	for _, o := range s.keepers {
		for _, u := range f.kept[o].held {
			s.devices = s.devices.Add(u, -1)
		}
	}
	change()
	for _, o := range s.keepers {
		k := f.kept[o]
		k.held = devices.FreeFor(s.node.Devices, s.devices, devices.Requests(k.Devices))
		for _, u := range k.held {
			s.devices = s.devices.Add(u, 1)
		}
		f.kept[o] = k
	}
	devices.UpdateFree(s.deviceGroups, s.node.Devices, s.devices)
}

func compareOwners(a, b cluster.OwnerRef) int {
	return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Name, b.Name))
}

// KeptText names the services whose kept room on a node holds something, "" if none does.
func (f *Fleet) KeptText(node string, holds func(*KeptRoom) bool) string {
	var names []string
	for o, k := range f.kept { // order-free: sorted below
		if k.Node == node && holds(&k) {
			names = append(names, o.Cluster+"/"+o.Name)
		}
	}
	slices.SortFunc(names, strings.Compare)
	const most = 3
	switch {
	case len(names) == 0:
		return ""
	case len(names) == 1:
		return "kept for the service " + names[0] + ", which keeps its room"
	}
	more := ""
	if len(names) > most {
		names, more = names[:most], " and others"
	}
	return "kept for the services " + strings.Join(names, ", ") + more + ", which keep their room"
}

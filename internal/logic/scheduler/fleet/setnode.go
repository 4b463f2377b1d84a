package fleet

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/devices"
	"github.com/berthd/berth/internal/logic/scheduler/index"
)

// SetNode adds the node, or replaces what is known of it. Its reservations stay. The fleet keeps n's slices and map;
// the caller must not change them afterwards.
func (f *Fleet) SetNode(n Node) {
	i := f.slot(n.Name)
	s := &f.slots[i]
	if s.set {
		f.removeFromIndex(i)
	} else {
		f.Names.Add(i)
	}
	f.NodeReservations += len(n.Reserved)
	s.deviceGroups = nil
	f.changeDevices(i, func() { s.node, s.set = n, true })
	s.deviceGroups = devices.GroupsOf(s.node.Devices, s.devices, f.valueModel)
	f.Images.add(i, n.Images)
	f.Volumes.add(i, &n)
	for _, p := range n.ReservedPorts {
		f.ports(i).Add(p)
	}
	f.Catalog.Labels.note(i, n.Labels, 1)
	l := &f.loads[i]
	l.Capacity, l.Class = index.Clamp(n.Capacity), f.Catalog.enter(&n)
	f.Catalog.Rekey(l)
	for order := range orders {
		f.Catalog.addToTree(order, l, i)
	}
	f.Catalog.updateDeviceClass(&f.slots[i], l, i, true)
	f.updateFineLabels(n.Labels)
}

// RemoveNode forgets the node. Its reservations stay charged until they are released, and count again if the node comes
// back.
func (f *Fleet) RemoveNode(name string) {
	i, found := f.Search(name)
	if !found {
		return
	}
	f.removeFromIndex(i)
	f.Names.Remove(i)
	s := &f.slots[i]
	s.node, s.set, s.deviceGroups = Node{Name: name}, false, nil
	f.vacate(i)
}

// removeFromIndex removes a node that is set from all indexes.
func (f *Fleet) removeFromIndex(i int32) {
	l := &f.loads[i]
	for order := range orders {
		f.Catalog.removeFromTree(order, l, i)
	}
	f.Catalog.leaveDeviceClass(l, i)
	f.Catalog.leave(l.Class)
	f.Catalog.Labels.note(i, f.slots[i].node.Labels, -1)
	f.NodeReservations -= len(f.slots[i].node.Reserved)
	f.Images.remove(i, f.slots[i].node.Images)
	f.Volumes.remove(i, &f.slots[i].node)
	l.Class = -1
	for _, p := range f.slots[i].node.ReservedPorts {
		f.ports(i).Remove(p)
	}
}

// updateFineLabels makes labels of a node fine or coarse as their counts demand.
func (f *Fleet) updateFineLabels(labels cluster.Labels) {
	var changed []string
	for key := range labels { // order-free: each for itself
		if l := f.Catalog.Labels.byKey[key]; l.fine != l.shouldBeFine(f.Names.Count) {
			changed = append(changed, key)
		}
	}
	if len(changed) > 0 {
		f.SwitchFineLabels(changed)
	}
}

// SwitchFineLabels makes fine labels coarse and coarse ones fine, and rebuilds the node classes. It ignores labels
// without nodes. The fleet does so by itself as its labels demand.
func (f *Fleet) SwitchFineLabels(keys []string) {
	g := &f.Catalog
	for _, key := range keys {
		if g.Labels.byKey[key] == nil {
			continue
		}
		if l := g.Labels.switchFine(key); l.fine {
			for i := range f.Names.All {
				value := f.slots[i].node.Labels[key]
				l.At[value] = append(l.At[value], i)
			}
		}
	}
	for i := range f.Names.All {
		l := &f.loads[i]
		for order := range orders {
			g.removeFromTree(order, l, i)
		}
		g.leaveDeviceClass(l, i)
		g.leave(l.Class)
	}
	for i := range f.Names.All {
		l := &f.loads[i]
		l.Class = g.enter(&f.slots[i].node)
		g.Rekey(l)
		for order := range orders {
			g.addToTree(order, l, i)
		}
		g.updateDeviceClass(&f.slots[i], l, i, true)
	}
}

// SetDeviceValueModel sets the value model of devices; with nil, as at first, devices have no value. The model ranks
// nodes and chooses devices for tasks of the strategy whole, and for tasks whose owner names no strategy.
func (f *Fleet) SetDeviceValueModel(w *devices.ValueModel) {
	alike := f.valueModel.SameNumbering(w)
	f.valueModel = w
	if alike {
		return
	}
	for i := range f.slots {
		if s := &f.slots[i]; s.set && len(s.node.Devices) > 0 {
			s.deviceGroups = devices.GroupsOf(s.node.Devices, s.devices, w)
		}
	}
}

// DeviceValueModel returns the value model that SetDeviceValueModel set last.
func (f *Fleet) DeviceValueModel() *devices.ValueModel { return f.valueModel }

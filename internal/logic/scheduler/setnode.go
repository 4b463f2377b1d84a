package scheduler

import "github.com/berthd/berth/internal/cluster"

// SetNode adds the node, or replaces what is known of it. Its reservations stay. The fleet keeps n's slices and map;
// the caller must not change them afterwards.
func (f *Fleet) SetNode(n Node) {
	i := f.slot(n.Name)
	s := &f.slots[i]
	if s.set {
		f.removeFromIndex(i)
	} else {
		f.names.add(i)
	}
	s.node, s.set = n, true
	f.nodeReservations += len(n.Reserved)
	s.deviceGroups = groupDevices(s.node.Devices, s.devices, f.valueModel)
	f.images.add(i, n.Images)
	f.volumes.add(i, &n)
	for _, p := range n.ReservedPorts {
		f.ports(i).add(p)
	}
	f.catalog.labels.note(i, n.Labels, 1)
	l := &f.loads[i]
	l.capacity, l.class = clamp(n.Capacity), f.catalog.enter(&n)
	f.catalog.rekey(l)
	for order := range orders {
		f.catalog.addToTree(order, l, i)
	}
	f.catalog.updateDeviceClass(&f.slots[i], l, i, true)
	f.updateFineLabels(n.Labels)
}

// RemoveNode forgets the node. Its reservations stay charged until they are released, and count again if the node comes
// back.
func (f *Fleet) RemoveNode(name string) {
	i, found := f.search(name)
	if !found {
		return
	}
	f.removeFromIndex(i)
	f.names.remove(i)
	s := &f.slots[i]
	s.node, s.set, s.deviceGroups = Node{Name: name}, false, nil
	f.vacate(i)
}

// removeFromIndex removes a node that is set from all indexes.
func (f *Fleet) removeFromIndex(i int32) {
	l := &f.loads[i]
	for order := range orders {
		f.catalog.removeFromTree(order, l, i)
	}
	f.catalog.leaveDeviceClass(l, i)
	f.catalog.leave(l.class)
	f.catalog.labels.note(i, f.slots[i].node.Labels, -1)
	f.nodeReservations -= len(f.slots[i].node.Reserved)
	f.images.remove(i, f.slots[i].node.Images)
	f.volumes.remove(i, &f.slots[i].node)
	l.class = -1
	for _, p := range f.slots[i].node.ReservedPorts {
		f.ports(i).remove(p)
	}
}

// updateFineLabels makes labels of a node fine or coarse as their counts demand.
func (f *Fleet) updateFineLabels(labels cluster.Labels) {
	var changed []string
	for key := range labels { // order-free: each for itself
		if l := f.catalog.labels.byKey[key]; l.fine != l.shouldBeFine(f.names.count) {
			changed = append(changed, key)
		}
	}
	if len(changed) > 0 {
		f.switchFineLabels(changed)
	}
}

// switchFineLabels makes fine labels coarse and coarse ones fine, and rebuilds the node classes. It ignores labels
// without nodes. The fleet does so by itself as its labels demand.
func (f *Fleet) switchFineLabels(keys []string) {
	g := &f.catalog
	for _, key := range keys {
		if g.labels.byKey[key] == nil {
			continue
		}
		if l := g.labels.switchFine(key); l.fine {
			for i := range f.names.all {
				value := f.slots[i].node.Labels[key]
				l.at[value] = append(l.at[value], i)
			}
		}
	}
	for i := range f.names.all {
		l := &f.loads[i]
		for order := range orders {
			g.removeFromTree(order, l, i)
		}
		g.leaveDeviceClass(l, i)
		g.leave(l.class)
	}
	for i := range f.names.all {
		l := &f.loads[i]
		l.class = g.enter(&f.slots[i].node)
		g.rekey(l)
		for order := range orders {
			g.addToTree(order, l, i)
		}
		g.updateDeviceClass(&f.slots[i], l, i, true)
	}
}

// SetDeviceValueModel sets the value model of devices; with nil, as at first, devices have no value. The model ranks
// nodes and chooses devices for tasks of the strategy whole, and for tasks whose owner names no strategy.
func (f *Fleet) SetDeviceValueModel(w *ValueModel) {
	alike := f.valueModel.sameNumbering(w)
	f.valueModel = w
	if alike {
		return
	}
	for i := range f.slots {
		if s := &f.slots[i]; s.set && len(s.node.Devices) > 0 {
			s.deviceGroups = groupDevices(s.node.Devices, s.devices, w)
		}
	}
}

// DeviceValueModel returns the value model that SetDeviceValueModel set last.
func (f *Fleet) DeviceValueModel() *ValueModel { return f.valueModel }

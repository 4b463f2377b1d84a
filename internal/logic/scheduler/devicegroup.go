package scheduler

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// deviceGroup is the devices of one type on a node, with what is free of each.
type deviceGroup struct {
	deviceType string
	typeNumber int32    // the number of the type in the value model; -1 if unknown there
	positions  []uint16 // indices in the node's list of devices
	devices    []packing.Device
}

// groupDevices groups a node's devices by type.
func groupDevices(n *Node, used deviceUses, w *ValueModel) (groups []deviceGroup) {
	for at := range n.Devices {
		d := &n.Devices[at]
		i := slices.IndexFunc(groups, func(b deviceGroup) bool { return b.deviceType == d.Type })
		if i < 0 {
			i = len(groups)
			groups = append(groups, deviceGroup{deviceType: d.Type, typeNumber: w.find(d.Type)})
		}
		v := packing.Device{Model: otherModelNumber}
		if groups[i].typeNumber >= 0 {
			v.Model = modelNumber(w.types[groups[i].typeNumber].models, d.Model)
		}
		groups[i].positions, groups[i].devices = append(groups[i].positions, uint16(at)), append(groups[i].devices, v)
	}
	updateFreeDevices(groups, n, used)
	return groups
}

// updateFreeDevices sets what is free of each device.
func updateFreeDevices(groups []deviceGroup, n *Node, used deviceUses) {
	for i := range groups {
		b := &groups[i]
		for j, at := range b.positions {
			d, v := &n.Devices[at], &b.devices[j]
			v.Free, v.Memory = cluster.WholeDevice, d.Memory
			if len(used) == 0 {
				continue
			}
			if u, found := used.find(d.ID); found {
				v.Free, v.Memory = cluster.WholeDevice-used[u].Share, d.Memory-used[u].Memory
				v.Free = min(v.Free, cluster.WholeDevice-1) // a device with any usage must not count as whole
			}
		}
	}
}

// copyDeviceGroups copies groups into the memory of into, and returns the copy.
func copyDeviceGroups(into, groups []deviceGroup) []deviceGroup {
	into = slices.Grow(into[:0], len(groups))[:len(groups)]
	for i := range groups {
		devices := append(into[i].devices[:0], groups[i].devices...)
		into[i] = groups[i]
		into[i].devices = devices
	}
	return into
}

// deviceGroupsOf returns a node's devices with what is free of each, for reading.
func (y *cycle) deviceGroupsOf(slot int32) []deviceGroup {
	if own, found := y.deviceGroups[slot]; found {
		return own
	}
	return y.fleet.slots[slot].deviceGroups
}

// hasDevicesFor reports whether the node has free devices for a single request. It agrees with assign for a task with
// no other request.
func (y *cycle) hasDevicesFor(slot int32, r *cluster.DeviceRequest) bool {
	n, groups := y.node(slot), y.deviceGroupsOf(slot)
	for i := range groups {
		b := &groups[i]
		if b.deviceType != r.Type {
			continue
		}
		free := 0
		for j := range b.devices {
			v := &b.devices[j]
			if r.Share > 0 && v.Free >= r.Share && v.Memory >= r.Memory && suits(r, &n.Devices[b.positions[j]]) {
				return true
			}
			if r.Share == 0 && v.Free == cluster.WholeDevice && suits(r, &n.Devices[b.positions[j]]) {
				if free++; free >= r.Count {
					return true
				}
			}
		}
	}
	return false
}

// tentativeUse is a device that a tentative allocation uses.
type tentativeUse struct {
	group, device int
	share         int
	memory        cluster.Bytes
}

// valueModelApplies reports whether the value of devices counts in the ranks of a node class for a task class.
func (y *cycle) valueModelApplies(c *taskClass, class int32) bool {
	if !c.usesValueModel {
		return false
	}
	if y.valuedNodeClasses == nil {
		classes := y.fleet.catalog.classes
		y.valuedNodeClasses = make([]bool, len(classes))
		for i := range classes {
			y.valuedNodeClasses[i] = slices.ContainsFunc(classes[i].like.Devices, func(d cluster.Device) bool {
				return y.fleet.valueModel.find(d.Type) >= 0
			})
		}
	}
	return y.valuedNodeClasses[class]
}

// valueLoss returns the value that the node's devices lose by a task of the class, in the steps of packing.Loss. The
// task must fit.
func (y *cycle) valueLoss(c *taskClass, slot int32) uint64 {
	groups := y.deviceGroupsOf(slot)
	if !c.usesValueModel || len(groups) == 0 {
		return packing.NoLoss
	}
	after := groups
	if len(c.requests) > 0 {
		y.allocate(c, slot)
		after = y.tentative
	}
	free := y.load(slot).free()
	lost := int64(0)
	for i := range groups {
		if groups[i].typeNumber < 0 {
			continue
		}
		w := y.fleet.valueModel.types[groups[i].typeNumber].values
		n := packing.Node{FreeCPU: free.CPU, FreeMemory: free.Memory, Devices: groups[i].devices}
		lost += w.Value(&n)
		n = packing.Node{
			FreeCPU: free.CPU - c.demand.CPU, FreeMemory: free.Memory - c.demand.Memory,
			Devices: after[i].devices,
		}
		lost -= w.Value(&n)
	}
	return packing.Loss(lost)
}

// allocate makes a tentative allocation for a task on a node that has the devices free.
func (y *cycle) allocate(c *taskClass, slot int32) {
	if !y.allocateByValue(c, slot) {
		y.allocateAssigned(c, slot)
	}
}

// allocateByValue allocates devices request by request: for a share the device that loses the least value, else whole
// devices with the least memory. It reports whether it could serve all requests. The result is in y.tentativeUses, and
// the devices left free in y.tentative.
func (y *cycle) allocateByValue(c *taskClass, slot int32) bool {
	y.tentative, y.tentativeUses = copyDeviceGroups(y.tentative, y.deviceGroupsOf(slot)), y.tentativeUses[:0]
	n := y.node(slot)
	for i := range c.requests {
		r := &c.requests[i]
		if r.OneNuma {
			return false
		}
		at := slices.IndexFunc(y.tentative, func(b deviceGroup) bool { return b.deviceType == r.Type })
		if at < 0 || y.tentative[at].typeNumber < 0 {
			return false
		}
		if r.Share == 0 {
			if !y.allocateWhole(at, n, r) {
				return false
			}
			continue
		}
		w := &y.fleet.valueModel.types[y.tentative[at].typeNumber]
		demand := demandOf(r, w.models)
		device, found := w.values.Pick(&packing.Node{Devices: y.tentative[at].devices}, &demand)
		if !found || !suits(r, &n.Devices[y.tentative[at].positions[device]]) {
			return false
		}
		y.takeTentatively(tentativeUse{at, device, r.Share, r.Memory})
	}
	return true
}

// allocateWhole is allocateByValue for a request of whole devices.
func (y *cycle) allocateWhole(at int, n *Node, r *cluster.DeviceRequest) bool {
	b := &y.tentative[at]
	var free [packing.MostDevices]int
	found := 0
	for j := range b.devices[:min(len(b.devices), packing.MostDevices)] {
		if b.devices[j].Free == cluster.WholeDevice && suits(r, &n.Devices[b.positions[j]]) {
			free[found] = j
			found++
		}
	}
	if found < r.Count {
		return false
	}
	list := free[:found]
	if found > r.Count {
		device := func(j int) *cluster.Device { return &n.Devices[b.positions[j]] }
		rank := func(j int) int { // as in freeDevices
			there := 0
			for _, o := range list {
				if device(o).Numa == device(j).Numa {
					there++
				}
			}
			if there >= r.Count {
				return there
			}
			return len(n.Devices) + 1
		}
		var ranks [packing.MostDevices]int
		for _, j := range list {
			ranks[j] = rank(j)
		}
		order := func(i, j int) int {
			a, b := device(i), device(j)
			if c := cmp.Or(cmp.Compare(a.Memory, b.Memory), cmp.Compare(ranks[i], ranks[j]),
				cmp.Compare(a.Numa, b.Numa)); c != 0 {
				return c
			}
			return strings.Compare(a.ID, b.ID)
		}
		if r.Count == 1 {
			list[0] = slices.MinFunc(list, order)
		} else {
			slices.SortFunc(list, order)
		}
	}
	for _, j := range list[:r.Count] {
		y.takeTentatively(tentativeUse{at, j, cluster.WholeDevice, 0})
	}
	return true
}

// takeTentatively charges a device to the tentative allocation.
func (y *cycle) takeTentatively(p tentativeUse) {
	v := &y.tentative[p.group].devices[p.device]
	v.Free, v.Memory = v.Free-p.share, v.Memory-p.memory
	y.tentativeUses = append(y.tentativeUses, p)
}

// allocateAssigned allocates the devices that assign chooses, for requests that the value model does not cover.
func (y *cycle) allocateAssigned(c *taskClass, slot int32) {
	y.tentative, y.tentativeUses = copyDeviceGroups(y.tentative, y.deviceGroupsOf(slot)), y.tentativeUses[:0]
	n := y.node(slot)
	uses, _, _ := assign(n.Devices, y.devicesOf(slot), c.requests)
	for _, u := range uses {
		for i := range y.tentative {
			for j, at := range y.tentative[i].positions {
				if n.Devices[at].ID == u.ID {
					y.takeTentatively(tentativeUse{i, j, u.Share, u.Memory})
				}
			}
		}
	}
}

// devicesFor returns the devices that a task of the class gets on a node that does not refuse it.
func (y *cycle) devicesFor(c *taskClass, slot int32) (uses deviceUses) {
	if !c.usesValueModel || !y.allocateByValue(c, slot) {
		uses, _, _ = assign(y.node(slot).Devices, y.devicesOf(slot), c.requests)
		return uses
	}
	for _, p := range y.tentativeUses {
		at := y.tentative[p.group].positions[p.device]
		uses = uses.add(cluster.DeviceUse{ID: y.node(slot).Devices[at].ID, Share: p.share, Memory: p.memory}, 1)
	}
	return uses
}

package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// valueModelApplies reports whether the value of devices counts in the ranks of a node class for a task class.
func (e *evaluator) valueModelApplies(c *taskClass, class int32) bool {
	if !c.devices.usesValueModel {
		return false
	}
	if e.valuedNodeClasses == nil {
		classes := e.nodes.fleet.catalog.classes
		e.valuedNodeClasses = make([]bool, len(classes))
		for i := range classes {
			e.valuedNodeClasses[i] = slices.ContainsFunc(classes[i].like.Devices, func(d cluster.Device) bool {
				return e.nodes.fleet.DeviceValueModel().find(d.Type) >= 0
			})
		}
	}
	return e.valuedNodeClasses[class]
}

// valueLoss returns the value that the node's devices lose by a task of the class, in the steps of packing.Loss. The
// task must fit.
func (e *evaluator) valueLoss(c *taskClass, slot int32) uint64 {
	groups := e.nodes.deviceGroupsOf(slot)
	if !c.devices.usesValueModel || len(groups) == 0 {
		return packing.NoLoss
	}
	after := groups
	if len(c.devices.requests) > 0 {
		after = e.allocate(c, slot, groups)
	}
	free := e.nodes.load(slot).free()
	lost := int64(0)
	for i := range groups {
		if groups[i].typeNumber < 0 {
			continue
		}
		w := e.nodes.fleet.DeviceValueModel().ofType(groups[i].typeNumber).values
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

// allocate makes a tentative allocation for a task on a node that has the devices free. It returns what is left free,
// valid until the next allocation.
func (e *evaluator) allocate(c *taskClass, slot int32, groups []deviceGroup) []deviceGroup {
	list := e.nodes.node(slot).Devices
	if !e.allocator.byValue(list, groups, c.devices.requests) {
		uses, _, _ := assign(list, e.nodes.devicesOf(slot), c.devices.requests)
		e.allocator.assigned(list, groups, uses)
	}
	return e.allocator.left
}

// devicesFor returns the devices that a task of the class gets on a node that does not refuse it.
func (e *evaluator) devicesFor(c *taskClass, slot int32) (uses deviceUses) {
	list := e.nodes.node(slot).Devices
	if !c.devices.usesValueModel || !e.allocator.byValue(list, e.nodes.deviceGroupsOf(slot), c.devices.requests) {
		uses, _, _ = assign(list, e.nodes.devicesOf(slot), c.devices.requests)
		return uses
	}
	return e.allocator.chosen(list)
}

// deviceFit returns the result of a task class's requests on a device class. It examines one node of it, once.
func (e *evaluator) deviceFit(c *taskClass, all *deviceClasses, i int32) *deviceFit {
	if c.devices.fits == nil {
		c.devices.fits, e.nodes.buffer = e.fits.of(c.devices.requests, c.devices.usesValueModel, e.nodes.buffer)
	}
	list := c.devices.fits
	if len(list.list) < len(all.list) {
		list.list = append(list.list, make([]deviceFit, len(all.list)-len(list.list))...)
	}
	p := &list.list[i]
	if p.known {
		return p
	}
	slot := all.list[i].tree.slot
	p.known, p.fits, p.shape = true, !e.missesDevices(c, slot), all.list[i].shape
	if !p.fits || !e.valueModelApplies(c, e.nodes.fleet.classOf(slot)) {
		return p
	}
	groups := e.nodes.deviceGroupsOf(slot)
	after := groups
	if len(c.devices.requests) > 0 {
		after = e.allocate(c, slot, groups)
	}
	from := len(list.store)
	for b := range groups {
		if groups[b].typeNumber >= 0 {
			w := e.nodes.fleet.DeviceValueModel().ofType(groups[b].typeNumber).values
			list.store = append(list.store,
				groupValue{w.DeviceValue(groups[b].devices), w.DeviceValue(after[b].devices)})
		}
	}
	p.groupValues = slices.Clip(list.store[from:])
	return p
}

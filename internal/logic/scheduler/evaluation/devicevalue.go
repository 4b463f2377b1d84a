package evaluation

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
	"github.com/berthd/berth/internal/logic/scheduler/devices"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// ValueModelApplies reports whether the value of devices counts in the ranks of a node class for a task class.
func (e *Evaluator) ValueModelApplies(c *taskclass.Class, class int32) bool {
	if !c.Devices.UsesValueModel {
		return false
	}
	if e.valuedNodeClasses == nil {
		classes := e.nodes.Fleet.Catalog.Classes
		e.valuedNodeClasses = make([]bool, len(classes))
		for i := range classes {
			e.valuedNodeClasses[i] = slices.ContainsFunc(classes[i].Like.Devices, func(d cluster.Device) bool {
				return e.nodes.Fleet.DeviceValueModel().Find(d.Type) >= 0
			})
		}
	}
	return e.valuedNodeClasses[class]
}

// ValueLoss returns the value that the node's devices lose by a task of the class, in the steps of packing.Loss. The
// task must fit.
func (e *Evaluator) ValueLoss(c *taskclass.Class, slot int32) uint64 {
	groups := e.nodes.DeviceGroupsOf(slot)
	if !c.Devices.UsesValueModel || len(groups) == 0 {
		return packing.NoLoss
	}
	after := groups
	if len(c.Devices.Requests) > 0 {
		after = e.allocate(c, slot, groups)
	}
	free := e.nodes.Load(slot).Free()
	lost := int64(0)
	for i := range groups {
		if groups[i].TypeNumber < 0 {
			continue
		}
		w := e.nodes.Fleet.DeviceValueModel().OfType(groups[i].TypeNumber).Values
		n := packing.Node{FreeCPU: free.CPU, FreeMemory: free.Memory, Devices: groups[i].Devices}
		lost += w.Value(&n)
		n = packing.Node{
			FreeCPU: free.CPU - c.Demand.CPU, FreeMemory: free.Memory - c.Demand.Memory,
			Devices: after[i].Devices,
		}
		lost -= w.Value(&n)
	}
	return packing.Loss(lost)
}

// allocate makes a tentative allocation for a task on a node that has the devices free. It returns what is left free,
// valid until the next allocation.
func (e *Evaluator) allocate(c *taskclass.Class, slot int32, groups []devices.Group) []devices.Group {
	list := e.nodes.Node(slot).Devices
	if !e.allocator.ByValue(list, groups, c.Devices.Requests) {
		uses, _, _ := devices.Assign(list, e.nodes.DevicesOf(slot), c.Devices.Requests)
		e.allocator.Assigned(list, groups, uses)
	}
	return e.allocator.Left
}

// DevicesFor returns the devices that a task of the class gets on a node that does not refuse it.
func (e *Evaluator) DevicesFor(c *taskclass.Class, slot int32) (uses devices.Uses) {
	list := e.nodes.Node(slot).Devices
	if !c.Devices.UsesValueModel || !e.allocator.ByValue(list, e.nodes.DeviceGroupsOf(slot), c.Devices.Requests) {
		uses, _, _ = devices.Assign(list, e.nodes.DevicesOf(slot), c.Devices.Requests)
		return uses
	}
	return e.allocator.Chosen(list)
}

// DeviceFit returns the result of a task class's requests on a device class. It examines one node of it, once.
func (e *Evaluator) DeviceFit(c *taskclass.Class, all *fleet.DeviceClasses, i int32) *devices.Fit {
	if c.Devices.Fits == nil {
		c.Devices.Fits, e.nodes.Buffer = e.fits.Of(c.Devices.Requests, c.Devices.UsesValueModel, e.nodes.Buffer)
	}
	p := c.Devices.Fits.At(i, len(all.List))
	if p.Known {
		return p
	}
	slot := all.List[i].Tree.Slot
	p.Known, p.Fits, p.Shape = true, !e.MissesDevices(c, slot), all.List[i].Shape
	if !p.Fits || !e.ValueModelApplies(c, e.nodes.Fleet.ClassOf(slot)) {
		return p
	}
	groups := e.nodes.DeviceGroupsOf(slot)
	after := groups
	if len(c.Devices.Requests) > 0 {
		after = e.allocate(c, slot, groups)
	}
	c.Devices.Fits.SetValues(p, e.nodes.Fleet.DeviceValueModel(), groups, after)
	return p
}

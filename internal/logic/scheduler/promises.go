package scheduler

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/cycle"
	"github.com/berthd/berth/internal/logic/scheduler/devices"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// promises keeps room on the promised nodes of waiting tasks, so that tasks behind them in the queue do not take it.
// Each room is charged to its node until the task's next turn.
type promises struct {
	*cycle.Cycle
	rooms map[int32]*promisedRoom // by position in the order
}

// promisedRoom is what is kept on a node for a waiting task with a promise.
type promisedRoom struct {
	slot    int32
	demand  cluster.Demand
	ports   []int
	devices []cluster.DeviceUse
}

// nodeFor returns the node that a task of the class has a promise of, if the task fits there now; else -1.
func (y *promises) nodeFor(c *taskclass.Class) int32 {
	if c.Task.Promised == "" {
		return -1
	}
	slot, found := y.Nodes.Fleet.Search(c.Task.Promised)
	if !found {
		return -1
	}
	y.Preparer.Prepare(c)
	if !y.Eval.IsFeasible(c, slot) {
		return -1
	}
	return slot
}

// takeKept makes the room that services keep the promised room of their waiting tasks. The fleet has charged it
// already, so that also more urgent tasks do not take it.
func (y *promises) takeKept(positions []int32) {
	if !y.Nodes.Fleet.KeepsRoom() {
		return
	}
	taken := map[cluster.OwnerRef]bool{}
	for _, i := range positions {
		o := y.Classes.Task(i).Owner
		kept, keeps := y.Nodes.Fleet.Kept(o)
		slot, found := y.Nodes.Fleet.Search(kept.Node)
		if !keeps || !found || taken[o] {
			continue
		}
		if y.rooms == nil {
			y.rooms = map[int32]*promisedRoom{}
		}
		taken[o] = true
		y.rooms[i] = &promisedRoom{slot: slot, demand: kept.Demand, ports: kept.Ports, devices: kept.Held()}
	}
}

// reserve keeps the promised room of waiting tasks.
func (y *promises) reserve(waiting []int32) {
	for _, i := range waiting {
		c := y.Classes.At[i]
		slot, found := y.Nodes.Fleet.Search(c.Task.Promised)
		if c.Task.Promised == "" || !found {
			continue
		}
		k := &promisedRoom{slot: slot, demand: c.Demand}
		k.devices = devices.FreeFor(y.Nodes.Node(slot).Devices, y.Nodes.DevicesOf(slot), c.Devices.Requests)
		for _, port := range c.Ports.Fixed {
			if ports := y.Nodes.PortsOf(slot); ports == nil || !ports.Has(port) {
				k.ports = append(k.ports, port)
			}
		}
		if y.rooms == nil {
			y.rooms = map[int32]*promisedRoom{}
		}
		y.rooms[i] = k
		y.charge(k, 1)
	}
}

// charge charges kept room to its node with 1, or releases it with -1.
func (y *promises) charge(k *promisedRoom, sign int) {
	if k == nil {
		return
	}
	l := y.Nodes.OwnLoad(k.slot)
	if sign > 0 {
		l.Used = l.Used.Add(k.demand)
	} else {
		l.Used = l.Used.Sub(k.demand)
	}
	for _, port := range k.ports {
		if sign > 0 {
			y.Nodes.OwnPorts(k.slot).Add(port)
		} else {
			y.Nodes.OwnPorts(k.slot).Remove(port)
		}
	}
	if len(k.devices) > 0 {
		y.Nodes.UseDevices(k.slot, k.devices, sign)
	}
	y.Nodes.Touch(l, k.slot)
}

// release releases the room of tasks whose turn has come.
func (y *promises) release(positions ...int32) {
	if len(y.rooms) == 0 {
		return
	}
	for _, i := range positions {
		if k := y.rooms[i]; k != nil {
			y.charge(k, -1)
			delete(y.rooms, i)
			y.Nodes.UndoCount++
		}
	}
}

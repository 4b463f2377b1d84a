package scheduler

import "github.com/berthd/berth/internal/cluster"

// promises keeps room on the promised nodes of waiting tasks, so that tasks behind them in the queue do not take it.
// Each room is charged to its node until the task's next turn.
type promises struct {
	*cycle
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
func (y *promises) nodeFor(c *taskClass) int32 {
	if c.task.Promised == "" {
		return -1
	}
	slot, found := y.nodes.fleet.search(c.task.Promised)
	if !found {
		return -1
	}
	y.preparer.prepare(c)
	if !y.eval.isFeasible(c, slot) {
		return -1
	}
	return slot
}

// reserve keeps the promised room of waiting tasks.
func (y *promises) reserve(waiting []int32) {
	for _, i := range waiting {
		c := y.classes.at[i]
		slot, found := y.nodes.fleet.search(c.task.Promised)
		if c.task.Promised == "" || !found {
			continue
		}
		k := &promisedRoom{slot: slot, demand: c.demand}
		k.devices = freeFor(y.nodes.node(slot).Devices, y.nodes.devicesOf(slot), c.devices.requests)
		for _, port := range c.ports.fixed {
			if ports := y.nodes.portsOf(slot); ports == nil || !ports.has(port) {
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
	l := y.nodes.ownLoad(k.slot)
	if sign > 0 {
		l.used = l.used.Add(k.demand)
	} else {
		l.used = l.used.Sub(k.demand)
	}
	for _, port := range k.ports {
		if sign > 0 {
			y.nodes.ownPorts(k.slot).add(port)
		} else {
			y.nodes.ownPorts(k.slot).remove(port)
		}
	}
	if len(k.devices) > 0 {
		y.nodes.useDevices(k.slot, k.devices, sign)
	}
	y.nodes.touch(l, k.slot)
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
			y.nodes.undoCount++
		}
	}
}

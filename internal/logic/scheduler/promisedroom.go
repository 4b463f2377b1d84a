package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// promisedRoom is what is kept on a node for a waiting task with a promise.
type promisedRoom struct {
	slot    int32
	demand  cluster.Demand
	ports   []int
	devices []cluster.DeviceUse
}

// promised returns the node that a task of the class has a promise of, if the task fits there now; else -1.
func (y *cycle) promised(c *taskClass) int32 {
	if c.Promised == "" {
		return -1
	}
	slot, found := y.fleet.search(c.Promised)
	if !found {
		return -1
	}
	y.prepare(c)
	if !y.isFeasible(c, slot) {
		return -1
	}
	return slot
}

// reservePromised keeps the promised room of waiting tasks.
func (y *cycle) reservePromised(waiting []int32) {
	for _, i := range waiting {
		c := y.taskClassAt[i]
		slot, found := y.fleet.search(c.Promised)
		if c.Promised == "" || !found {
			continue
		}
		k := &promisedRoom{slot: slot, demand: c.demand, devices: y.freeDevicesFor(c, slot)}
		for _, port := range c.fixed {
			if ports := y.portsOf(slot); ports == nil || !ports.has(port) {
				k.ports = append(k.ports, port)
			}
		}
		if y.promisedRooms == nil {
			y.promisedRooms = map[int32]*promisedRoom{}
		}
		y.promisedRooms[i] = k
		y.chargePromised(k, 1)
	}
}

// freeDevicesFor returns the devices of a node that the class would use, as far as they are free already.
func (y *cycle) freeDevicesFor(c *taskClass, slot int32) (uses []cluster.DeviceUse) {
	list, now := y.node(slot).Devices, slices.Clone(y.devicesOf(slot))
	take := func(u cluster.DeviceUse) {
		now, uses = now.add(u, 1), append(uses, u)
	}
	for i := range c.requests {
		r := &c.requests[i]
		if r.Share > 0 {
			if d := sharedDevice(list, now, r); d != nil {
				take(cluster.DeviceUse{ID: d.ID, Share: r.Share, Memory: r.Memory})
			}
			continue
		}
		free := freeDevices(list, now, r)
		for _, d := range free[:min(r.Count, len(free))] {
			take(cluster.DeviceUse{ID: d.ID, Share: cluster.WholeDevice})
		}
	}
	return uses
}

// chargePromised charges kept room to its node with 1, or releases it with -1.
func (y *cycle) chargePromised(k *promisedRoom, sign int) {
	if k == nil {
		return
	}
	l := y.ownLoad(k.slot)
	if sign > 0 {
		l.used = l.used.Add(k.demand)
	} else {
		l.used = l.used.Sub(k.demand)
	}
	for _, port := range k.ports {
		if sign > 0 {
			y.ownPorts(k.slot).add(port)
		} else {
			y.ownPorts(k.slot).remove(port)
		}
	}
	if len(k.devices) > 0 {
		y.useDevices(k.slot, k.devices, sign)
	}
	y.touch(l, k.slot)
}

// releasePromised releases the room of tasks whose turn has come.
func (y *cycle) releasePromised(positions ...int32) {
	if len(y.promisedRooms) == 0 {
		return
	}
	for _, i := range positions {
		if k := y.promisedRooms[i]; k != nil {
			y.chargePromised(k, -1)
			delete(y.promisedRooms, i)
			y.undoCount++
		}
	}
}

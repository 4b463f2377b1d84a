package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// kept is what is kept on a node for a waiting task that was promised room there.
type kept struct {
	slot    int32
	demand  cluster.Demand
	ports   []int
	devices []cluster.DeviceUse
}

// promised returns the node that a task of the class has a promise of, if it fits there now, or -1.
func (y *cycle) promised(c *class) int32 {
	if c.Promised == "" {
		return -1
	}
	slot, found := y.fleet.search(c.Promised)
	if !found {
		return -1
	}
	y.ready(c)
	if !y.takes(c, slot) {
		return -1
	}
	return slot
}

// keepFor keeps for waiting tasks what they were promised.
func (y *cycle) keepFor(waiting []int32) {
	for _, i := range waiting {
		c := y.classOf[i]
		slot, found := y.fleet.search(c.Promised)
		if c.Promised == "" || !found {
			continue
		}
		k := &kept{slot: slot, demand: c.demand, devices: y.freeFor(c, slot)}
		for _, port := range c.fixed {
			if ports := y.portsOf(slot); ports == nil || !ports.has(port) {
				k.ports = append(k.ports, port)
			}
		}
		if y.kept == nil {
			y.kept = map[int32]*kept{}
		}
		y.kept[i] = k
		y.keepAgain(k, 1)
	}
}

// freeFor returns those devices of a node that the class would use, as far as they are free already.
func (y *cycle) freeFor(c *class, slot int32) (uses []cluster.DeviceUse) {
	list, now := y.node(slot).Devices, slices.Clone(y.devicesOf(slot))
	take := func(u cluster.DeviceUse) {
		now, uses = now.add(u, 1), append(uses, u)
	}
	for i := range c.requests {
		r := &c.requests[i]
		if r.Share > 0 {
			if d := partOf(list, now, r); d != nil {
				take(cluster.DeviceUse{ID: d.ID, Share: r.Share, Memory: r.Memory})
			}
			continue
		}
		free := wholeOf(list, now, r)
		for _, d := range free[:min(r.Count, len(free))] {
			take(cluster.DeviceUse{ID: d.ID, Share: cluster.WholeDevice})
		}
	}
	return uses
}

// keepAgain charges what is kept to its node, with 1, or gives it back with -1.
func (y *cycle) keepAgain(k *kept, sign int) {
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

// unkeep gives back what is kept for tasks whose turn it is.
func (y *cycle) unkeep(positions ...int32) {
	if len(y.kept) == 0 {
		return
	}
	for _, i := range positions {
		if k := y.kept[i]; k != nil {
			y.keepAgain(k, -1)
			delete(y.kept, i)
			y.epoch++
		}
	}
}

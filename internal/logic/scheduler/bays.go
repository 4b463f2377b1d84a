package scheduler

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// bay is the devices of one type of a node, with what of them is free.
type bay struct {
	kind    string
	worth   int32    // its number in the fleet's worth, -1 if that knows nothing of such devices
	at      []uint16 // where each stands in the node's list
	devices []packing.Device
}

// baysOf sorts a node's devices by their types.
func baysOf(n *Node, used deviceUses, w *Worth) (bays []bay) {
	for at := range n.Devices {
		d := &n.Devices[at]
		i := slices.IndexFunc(bays, func(b bay) bool { return b.kind == d.Type })
		if i < 0 {
			i = len(bays)
			bays = append(bays, bay{kind: d.Type, worth: w.find(d.Type)})
		}
		v := packing.Device{Model: otherModel}
		if bays[i].worth >= 0 {
			v.Model = modelNumber(w.kinds[bays[i].worth].models, d.Model)
		}
		bays[i].at, bays[i].devices = append(bays[i].at, uint16(at)), append(bays[i].devices, v)
	}
	fillBays(bays, n, used)
	return bays
}

// fillBays notes what is free.
func fillBays(bays []bay, n *Node, used deviceUses) {
	for i := range bays {
		b := &bays[i]
		for j, at := range b.at {
			d, v := &n.Devices[at], &b.devices[j]
			v.Free, v.Memory = cluster.WholeDevice, d.Memory
			if len(used) == 0 {
				continue
			}
			if u, found := used.find(d.ID); found {
				v.Free, v.Memory = cluster.WholeDevice-used[u].Share, d.Memory-used[u].Memory
				v.Free = min(v.Free, cluster.WholeDevice-1) // of what is used at all not all is free
			}
		}
	}
}

// copyBays copies bays into the room of others.
func copyBays(into, bays []bay) []bay {
	into = slices.Grow(into[:0], len(bays))[:len(bays)]
	for i := range bays {
		devices := append(into[i].devices[:0], bays[i].devices...)
		into[i] = bays[i]
		into[i].devices = devices
	}
	return into
}

// baysOf returns what is free of a node's devices, to be read.
func (y *cycle) baysOf(slot int32) []bay {
	if own, found := y.bays[slot]; found {
		return own
	}
	return y.fleet.slots[slot].bays
}

// serves reports whether the node has free what one request asks for: as assign, for a task with nothing else.
func (y *cycle) serves(slot int32, r *cluster.DeviceRequest) bool {
	n, bays := y.node(slot), y.baysOf(slot)
	for i := range bays {
		b := &bays[i]
		if b.kind != r.Type {
			continue
		}
		free := 0
		for j := range b.devices {
			v := &b.devices[j]
			if r.Share > 0 && v.Free >= r.Share && v.Memory >= r.Memory && does(r, &n.Devices[b.at[j]]) {
				return true
			}
			if r.Share == 0 && v.Free == cluster.WholeDevice && does(r, &n.Devices[b.at[j]]) {
				if free++; free >= r.Count {
					return true
				}
			}
		}
	}
	return false
}

// pick is a device that a task would use.
type pick struct {
	bay, device int
	share       int
	memory      cluster.Bytes
}

// prices reports whether the worth of devices decides about nodes of a class of nodes, for a class of tasks.
func (y *cycle) prices(c *class, class int32) bool {
	if !c.priced {
		return false
	}
	if y.pricey == nil {
		classes := y.fleet.catalog.classes
		y.pricey = make([]bool, len(classes))
		for i := range classes {
			y.pricey[i] = slices.ContainsFunc(classes[i].like.Devices, func(d cluster.Device) bool {
				return y.fleet.worth.find(d.Type) >= 0
			})
		}
	}
	return y.pricey[class]
}

// lossOf returns what the node's devices lose by a task of the class, which they have room for, as packing.Loss has it.
func (y *cycle) lossOf(c *class, slot int32) uint64 {
	bays := y.baysOf(slot)
	if !c.priced || len(bays) == 0 {
		return packing.NoLoss
	}
	after := bays
	if len(c.requests) > 0 {
		y.pickFor(c, slot)
		after = y.desk
	}
	free := y.load(slot).free()
	lost := int64(0)
	for i := range bays {
		if bays[i].worth < 0 {
			continue
		}
		w := y.fleet.worth.kinds[bays[i].worth].worth
		n := packing.Node{FreeCPU: free.CPU, FreeMemory: free.Memory, Devices: bays[i].devices}
		lost += w.Value(&n)
		n = packing.Node{
			FreeCPU: free.CPU - c.demand.CPU, FreeMemory: free.Memory - c.demand.Memory,
			Devices: after[i].devices,
		}
		lost -= w.Value(&n)
	}
	return packing.Loss(lost)
}

// pickFor finds the devices for a task on a node that has them free.
func (y *cycle) pickFor(c *class, slot int32) {
	if !y.pick(c, slot) {
		y.pickAssigned(c, slot)
	}
}

// pick finds the devices for a task by what they are worth, one request after the other: of a share the one that loses
// least, whole ones with as little memory as will do, then as assign has it. It reports whether it found all; y.picks
// has them, y.desk what is free then.
func (y *cycle) pick(c *class, slot int32) bool {
	y.desk, y.picks = copyBays(y.desk, y.baysOf(slot)), y.picks[:0]
	n := y.node(slot)
	for i := range c.requests {
		r := &c.requests[i]
		if r.OneNuma {
			return false
		}
		at := slices.IndexFunc(y.desk, func(b bay) bool { return b.kind == r.Type })
		if at < 0 || y.desk[at].worth < 0 {
			return false
		}
		if r.Share == 0 {
			if !y.pickWhole(at, n, r) {
				return false
			}
			continue
		}
		w := &y.fleet.worth.kinds[y.desk[at].worth]
		demand := demandOf(r, w.models)
		device, found := w.worth.Pick(&packing.Node{Devices: y.desk[at].devices}, &demand)
		if !found || !does(r, &n.Devices[y.desk[at].at[device]]) {
			return false
		}
		y.use(pick{at, device, r.Share, r.Memory})
	}
	return true
}

// pickWhole is pick for whole devices.
func (y *cycle) pickWhole(at int, n *Node, r *cluster.DeviceRequest) bool {
	b := &y.desk[at]
	var free [packing.MostDevices]int
	found := 0
	for j := range b.devices[:min(len(b.devices), packing.MostDevices)] {
		if b.devices[j].Free == cluster.WholeDevice && does(r, &n.Devices[b.at[j]]) {
			free[found] = j
			found++
		}
	}
	if found < r.Count {
		return false
	}
	list := free[:found]
	if found > r.Count {
		device := func(j int) *cluster.Device { return &n.Devices[b.at[j]] }
		rank := func(j int) int { // as in wholeOf
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
		y.use(pick{at, j, cluster.WholeDevice, 0})
	}
	return true
}

// use takes a device on the desk.
func (y *cycle) use(p pick) {
	v := &y.desk[p.bay].devices[p.device]
	v.Free, v.Memory = v.Free-p.share, v.Memory-p.memory
	y.picks = append(y.picks, p)
}

// pickAssigned is pick for what worth knows no devices for: they are those of assign.
func (y *cycle) pickAssigned(c *class, slot int32) {
	y.desk, y.picks = copyBays(y.desk, y.baysOf(slot)), y.picks[:0]
	n := y.node(slot)
	uses, _, _ := assign(n.Devices, y.devicesOf(slot), c.requests)
	for _, u := range uses {
		for i := range y.desk {
			for j, at := range y.desk[i].at {
				if n.Devices[at].ID == u.ID {
					y.use(pick{i, j, u.Share, u.Memory})
				}
			}
		}
	}
}

// devicesFor returns the devices that a task of the class gets on a node that does not refuse it.
func (y *cycle) devicesFor(c *class, slot int32) (uses deviceUses) {
	if !c.priced || !y.pick(c, slot) {
		uses, _, _ = assign(y.node(slot).Devices, y.devicesOf(slot), c.requests)
		return uses
	}
	for _, p := range y.picks {
		at := y.desk[p.bay].at[p.device]
		uses = uses.add(cluster.DeviceUse{ID: y.node(slot).Devices[at].ID, Share: p.share, Memory: p.memory}, 1)
	}
	return uses
}

package scheduler

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// deviceUses is what is used of a node's devices, by their IDs in order; devices of which nothing is used are not in
// it.
type deviceUses []cluster.DeviceUse

func (u deviceUses) find(id string) (int, bool) {
	return slices.BinarySearchFunc(u, id, func(d cluster.DeviceUse, id string) int { return strings.Compare(d.ID, id) })
}

// of returns what is used of a device.
func (u deviceUses) of(id string) cluster.DeviceUse {
	if i, found := u.find(id); found {
		return u[i]
	}
	return cluster.DeviceUse{ID: id}
}

// add returns the uses with more, or with less of what is negative.
func (u deviceUses) add(more cluster.DeviceUse, sign int) deviceUses {
	i, found := u.find(more.ID)
	if !found {
		u = slices.Insert(u, i, cluster.DeviceUse{ID: more.ID})
	}
	u[i].Share += sign * more.Share
	u[i].Memory += cluster.Bytes(sign) * more.Memory
	if u[i].Share == 0 && u[i].Memory == 0 {
		return slices.Delete(u, i, i+1)
	}
	return u
}

// wholeRequest fills in what a request leaves open.
func wholeRequest(r cluster.DeviceRequest) cluster.DeviceRequest {
	r.Type = cmp.Or(r.Type, cluster.DefaultDeviceType)
	r.Count = max(r.Count, 1)
	return r
}

// requests returns what a task asks for in the order in which it is served: what fewer devices will do for comes first.
func requests(list []cluster.DeviceRequest) []cluster.DeviceRequest {
	all := make([]cluster.DeviceRequest, len(list))
	for i := range list {
		all[i] = wholeRequest(list[i])
	}
	pickiness := func(r cluster.DeviceRequest) int {
		n := 0
		if r.Share > 0 {
			n += 2
		}
		if len(r.Models) == 0 {
			n++
		}
		return n
	}
	slices.SortStableFunc(all, func(a, b cluster.DeviceRequest) int { return cmp.Compare(pickiness(a), pickiness(b)) })
	return all
}

// does reports whether a device will do for a request, when nothing of it is used.
func does(r *cluster.DeviceRequest, d *cluster.Device) bool {
	return d.Type == r.Type && (len(r.Models) == 0 || slices.Contains(r.Models, d.Model)) && d.Memory >= r.Memory
}

// has reports whether devices of which nothing is used would do for each request by itself. For all of them together it
// is asked with what is used: where some is, a request that comes first may leave to the next what it would have taken
// of an empty node.
func has(list []cluster.Device, requests []cluster.DeviceRequest) bool {
	if len(requests) == 1 && !requests[0].OneNuma { // mostly
		r, left := &requests[0], requests[0].Count
		if r.Share > 0 {
			left = 1
		}
		for i := range list {
			if does(r, &list[i]) {
				left--
			}
		}
		return left <= 0
	}
	for i := range requests {
		if _, lacking, _ := assign(list, nil, requests[i:i+1]); lacking >= 0 {
			return false
		}
	}
	return true
}

// assign finds devices for requests, or says which of them finds none, and what is used by then. Whole devices are of
// one NUMA node where one has enough free; of several such that with the fewest. A share is of that device of which the
// least is left, so that others stay whole. Of equals the ID that sorts first is taken.
func assign(list []cluster.Device, used deviceUses, requests []cluster.DeviceRequest) (uses deviceUses, lacking int,
	now deviceUses,
) {
	if slices.ContainsFunc(requests, oneNuma) {
		return assignOnOne(list, used, requests)
	}
	return assignAny(list, used, requests)
}

// assignAny is assign where it does not matter that devices are of one NUMA node.
func assignAny(list []cluster.Device, used deviceUses, requests []cluster.DeviceRequest) (uses deviceUses, lacking int,
	now deviceUses,
) {
	now = used
	take := func(u cluster.DeviceUse) {
		if len(uses) == 0 {
			now = slices.Clone(used)
		}
		now, uses = now.add(u, 1), uses.add(u, 1)
	}
	for i := range requests {
		r := &requests[i]
		if r.Share > 0 {
			d := partOf(list, now, r)
			if d == nil {
				return nil, i, now
			}
			take(cluster.DeviceUse{ID: d.ID, Share: r.Share, Memory: r.Memory})
			continue
		}
		free := wholeOf(list, now, r)
		if len(free) < r.Count {
			return nil, i, now
		}
		for _, d := range free[:r.Count] {
			take(cluster.DeviceUse{ID: d.ID, Share: cluster.WholeDevice})
		}
	}
	return uses, -1, now
}

// partOf returns the device of which a share is to be taken, or nil.
func partOf(list []cluster.Device, used deviceUses, r *cluster.DeviceRequest) (best *cluster.Device) {
	var least cluster.DeviceUse
	for i := range list {
		d := &list[i]
		u := used.of(d.ID)
		left := cluster.DeviceUse{ID: d.ID, Share: cluster.WholeDevice - u.Share, Memory: d.Memory - u.Memory}
		if !does(r, d) || left.Share < r.Share || left.Memory < r.Memory {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(left.Share, least.Share), cmp.Compare(left.Memory, least.Memory),
			strings.Compare(left.ID, least.ID)) < 0 {
			best, least = d, left
		}
	}
	return best
}

// wholeOf returns the devices of which nothing is used that will do, in the order in which they are to be taken.
func wholeOf(list []cluster.Device, used deviceUses, r *cluster.DeviceRequest) (free []*cluster.Device) {
	numa := map[int]int{}
	for i := range list {
		if _, taken := used.find(list[i].ID); !taken && does(r, &list[i]) {
			free = append(free, &list[i])
			numa[list[i].Numa]++
		}
	}
	// of NUMA nodes that have enough the one with the fewest first, then those that have not
	rank := func(d *cluster.Device) int {
		if n := numa[d.Numa]; n >= r.Count {
			return n
		}
		return len(list) + 1
	}
	slices.SortFunc(free, func(a, b *cluster.Device) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Numa, b.Numa), strings.Compare(a.ID, b.ID))
	})
	return free
}

// deviceText says which request a node does not meet, and by how many whole devices it is short.
func deviceText(list []cluster.Device, used deviceUses, r *cluster.DeviceRequest) (text string, short int) {
	kind := r.Type
	if len(r.Models) > 0 {
		kind += " of model " + strings.Join(r.Models, " or ")
	}
	if r.Memory > 0 && r.Share == 0 {
		kind += " with " + r.Memory.String()
	}
	have, part := 0, 0
	for i := range list {
		if !does(r, &list[i]) {
			continue
		}
		have++
		if u := used.of(list[i].ID); u.Share > 0 && u.Share < cluster.WholeDevice {
			part++
		}
	}
	switch {
	case have == 0:
		return "no " + kind, 0
	case r.OneNuma:
		return oneNumaText(list, used, r, kind)
	case r.Share > 0:
		return "no " + kind + " with enough left to share", 0
	case part > 0:
		return "too few " + kind + " free, some are used in part", r.Count - len(wholeOf(list, used, r))
	}
	return "too few " + kind + " free", r.Count - len(wholeOf(list, used, r))
}

// lacksDevices reports whether the node has not the devices that the class asks for free.
func (y *cycle) lacksDevices(c *class, slot int32) bool {
	if len(c.requests) == 0 {
		return false
	}
	if len(c.requests) == 1 && !c.requests[0].OneNuma {
		return !y.serves(slot, &c.requests[0])
	}
	_, lacking, _ := assign(y.node(slot).Devices, y.devicesOf(slot), c.requests)
	return lacking >= 0
}

// devicesOf returns what is used of a node's devices, to be read.
func (y *cycle) devicesOf(slot int32) deviceUses {
	if own, found := y.devices[slot]; found {
		return own
	}
	return y.fleet.slots[slot].devices
}

// useDevices changes what is used of a node's devices.
func (y *cycle) useDevices(slot int32, uses []cluster.DeviceUse, sign int) {
	own, found := y.devices[slot]
	if !found {
		own = slices.Clone(y.fleet.slots[slot].devices)
	}
	for _, u := range uses {
		own = own.add(u, sign)
	}
	if y.devices == nil {
		y.devices, y.bays = map[int32]deviceUses{}, map[int32][]bay{}
	}
	y.devices[slot] = own
	bays, found := y.bays[slot]
	if !found {
		bays = copyBays(nil, y.fleet.slots[slot].bays)
		y.bays[slot] = bays
	}
	fillBays(bays, y.node(slot), own)
}

package scheduler

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// deviceUses is what is used of a node's devices, ordered by ID. Unused devices are absent.
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

// add returns the uses with one more, or with a sign of -1 with one less.
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

// wholeRequest fills in the defaults of a request.
func wholeRequest(r cluster.DeviceRequest) cluster.DeviceRequest {
	r.Type = cmp.Or(r.Type, cluster.DefaultDeviceType)
	r.Count = max(r.Count, 1)
	return r
}

// requests returns a task's device requests in the order of service: the most selective first.
func requests(list []cluster.DeviceRequest) []cluster.DeviceRequest {
	all := make([]cluster.DeviceRequest, len(list))
	for i := range list {
		all[i] = wholeRequest(list[i])
	}
	alternatives := func(r cluster.DeviceRequest) int {
		n := 0
		if r.Share > 0 {
			n += 2
		}
		if len(r.Models) == 0 {
			n++
		}
		return n
	}
	slices.SortStableFunc(all, func(a, b cluster.DeviceRequest) int {
		return cmp.Compare(alternatives(a), alternatives(b))
	})
	return all
}

// suits reports whether a device meets a request while nothing of it is used.
func suits(r *cluster.DeviceRequest, d *cluster.Device) bool {
	return d.Type == r.Type && (len(r.Models) == 0 || slices.Contains(r.Models, d.Model)) && d.Memory >= r.Memory
}

// hasDevices reports whether the devices, unused, would meet each request by itself. It does not test all requests
// together: partial usage may lead an earlier request to leave a device to a later one, which an empty node would not.
func hasDevices(list []cluster.Device, requests []cluster.DeviceRequest) bool {
	if len(requests) == 1 && !requests[0].OneNuma { // the common case
		r, left := &requests[0], requests[0].Count
		if r.Share > 0 {
			left = 1
		}
		for i := range list {
			if suits(r, &list[i]) {
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

// assign finds devices for requests. If it cannot, it returns the index of the first request that fails, and what is
// used by then. Whole devices come from one NUMA node with enough free, if any: the one with the fewest free. A share
// comes from the device with the least left, so that others stay whole. Of equals the lowest ID is taken.
func assign(list []cluster.Device, used deviceUses, requests []cluster.DeviceRequest) (uses deviceUses, lacking int,
	now deviceUses,
) {
	if slices.ContainsFunc(requests, isOneNuma) {
		return assignOnOne(list, used, requests)
	}
	return assignAny(list, used, requests)
}

// assignAny is assign without the requirement of one NUMA node.
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
			d := sharedDevice(list, now, r)
			if d == nil {
				return nil, i, now
			}
			take(cluster.DeviceUse{ID: d.ID, Share: r.Share, Memory: r.Memory})
			continue
		}
		free := freeDevices(list, now, r)
		if len(free) < r.Count {
			return nil, i, now
		}
		for _, d := range free[:r.Count] {
			take(cluster.DeviceUse{ID: d.ID, Share: cluster.WholeDevice})
		}
	}
	return uses, -1, now
}

// sharedDevice returns the device that a share is taken of, or nil.
func sharedDevice(list []cluster.Device, used deviceUses, r *cluster.DeviceRequest) (best *cluster.Device) {
	var least cluster.DeviceUse
	for i := range list {
		d := &list[i]
		u := used.of(d.ID)
		left := cluster.DeviceUse{ID: d.ID, Share: cluster.WholeDevice - u.Share, Memory: d.Memory - u.Memory}
		if !suits(r, d) || left.Share < r.Share || left.Memory < r.Memory {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(left.Share, least.Share), cmp.Compare(left.Memory, least.Memory),
			strings.Compare(left.ID, least.ID)) < 0 {
			best, least = d, left
		}
	}
	return best
}

// freeDevices returns the unused devices that meet a request, in the order of allocation.
func freeDevices(list []cluster.Device, used deviceUses, r *cluster.DeviceRequest) (free []*cluster.Device) {
	numa := map[int]int{}
	for i := range list {
		if _, taken := used.find(list[i].ID); !taken && suits(r, &list[i]) {
			free = append(free, &list[i])
			numa[list[i].Numa]++
		}
	}
	// NUMA nodes with enough free come first, of these the one with the fewest.
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

// deviceText describes a request that a node does not meet, and returns how many whole devices are short.
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
		if !suits(r, &list[i]) {
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
		return "too few " + kind + " free, some are used in part", r.Count - len(freeDevices(list, used, r))
	}
	return "too few " + kind + " free", r.Count - len(freeDevices(list, used, r))
}

// missesDevices reports whether the node lacks free devices that the class asks for.
func (y *cycle) missesDevices(c *taskClass, slot int32) bool {
	if len(c.requests) == 0 {
		return false
	}
	if len(c.requests) == 1 && !c.requests[0].OneNuma {
		return !y.hasDevicesFor(slot, &c.requests[0])
	}
	_, lacking, _ := assign(y.node(slot).Devices, y.devicesOf(slot), c.requests)
	return lacking >= 0
}

// devicesOf returns what is used of a node's devices, for reading.
func (y *cycle) devicesOf(slot int32) deviceUses {
	if own, found := y.devices[slot]; found {
		return own
	}
	return y.fleet.slots[slot].devices
}

// useDevices adds device uses to a node, or with a sign of -1 removes them.
func (y *cycle) useDevices(slot int32, uses []cluster.DeviceUse, sign int) {
	own, found := y.devices[slot]
	if !found {
		own = slices.Clone(y.fleet.slots[slot].devices)
	}
	for _, u := range uses {
		own = own.add(u, sign)
	}
	if y.devices == nil {
		y.devices, y.deviceGroups = map[int32]deviceUses{}, map[int32][]deviceGroup{}
	}
	y.devices[slot] = own
	groups, found := y.deviceGroups[slot]
	if !found {
		groups = copyDeviceGroups(nil, y.fleet.slots[slot].deviceGroups)
		y.deviceGroups[slot] = groups
	}
	updateFreeDevices(groups, y.node(slot), own)
}

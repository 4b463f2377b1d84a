package devices

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// MeetEach reports whether the devices, unused, would meet each request by itself. It does not test all requests
// together: partial usage may lead an earlier request to leave a device to a later one, which an empty node would not.
func MeetEach(list []cluster.Device, requests []cluster.DeviceRequest) bool {
	if len(requests) == 1 && !requests[0].OneNuma { // the common case
		r, left := &requests[0], requests[0].Count
		if r.Share > 0 {
			left = 1
		}
		for i := range list {
			if Suits(r, &list[i]) {
				left--
			}
		}
		return left <= 0
	}
	for i := range requests {
		if _, lacking, _ := Assign(list, nil, requests[i:i+1]); lacking >= 0 {
			return false
		}
	}
	return true
}

// Assign finds devices for requests. If it cannot, it returns the index of the first request that fails, and what is
// used by then. Whole devices come from one NUMA node with enough free, if any: the one with the fewest free. A share
// comes from the device with the least left, so that others stay whole. Of equals the lowest ID is taken.
func Assign(list []cluster.Device, used Uses, requests []cluster.DeviceRequest) (uses Uses, lacking int,
	now Uses,
) {
	if slices.ContainsFunc(requests, isOneNuma) {
		return assignOnOne(list, used, requests)
	}
	return assignAny(list, used, requests)
}

// assignAny is assign without the requirement of one NUMA node.
func assignAny(list []cluster.Device, used Uses, requests []cluster.DeviceRequest) (uses Uses, lacking int,
	now Uses,
) {
	now = used
	take := func(u cluster.DeviceUse) {
		if len(uses) == 0 {
			now = slices.Clone(used)
		}
		now, uses = now.Add(u, 1), uses.Add(u, 1)
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
func sharedDevice(list []cluster.Device, used Uses, r *cluster.DeviceRequest) (best *cluster.Device) {
	var least cluster.DeviceUse
	for i := range list {
		d := &list[i]
		u := used.of(d.ID)
		left := cluster.DeviceUse{ID: d.ID, Share: cluster.WholeDevice - u.Share, Memory: d.Memory - u.Memory}
		if !Suits(r, d) || left.Share < r.Share || left.Memory < r.Memory {
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
func freeDevices(list []cluster.Device, used Uses, r *cluster.DeviceRequest) (free []*cluster.Device) {
	numa := map[int]int{}
	for i := range list {
		if _, taken := used.Find(list[i].ID); !taken && Suits(r, &list[i]) {
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

// FreeFor returns the devices that requests would use: those of Assign, or where it finds too few, each request's own
// as far as they are free already. It then ignores that some requests need one NUMA node.
func FreeFor(list []cluster.Device, used Uses, requests []cluster.DeviceRequest) (uses []cluster.DeviceUse) {
	if all, lacking, _ := Assign(list, used, requests); lacking < 0 {
		return all
	}
	now := slices.Clone(used)
	take := func(u cluster.DeviceUse) {
		now, uses = now.Add(u, 1), append(uses, u)
	}
	for i := range requests {
		r := &requests[i]
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

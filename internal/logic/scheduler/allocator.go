package scheduler

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// allocator makes tentative allocations: which devices of a node a task would get. One allocator serves a whole cycle;
// its lists hold the result of the last call until the next one.
type allocator struct {
	model *ValueModel
	left  []deviceGroup // the devices of the node, with what the allocation leaves free
	uses  []tentativeUse
}

// tentativeUse is a device that a tentative allocation uses.
type tentativeUse struct {
	group, device int
	share         int
	memory        cluster.Bytes
}

// byValue allocates devices request by request: for a share the device that loses the least value, else whole devices
// with the least memory. It reports whether it could serve all requests.
func (a *allocator) byValue(list []cluster.Device, groups []deviceGroup, requests []cluster.DeviceRequest) bool {
	a.left, a.uses = copyDeviceGroups(a.left, groups), a.uses[:0]
	for i := range requests {
		r := &requests[i]
		if r.OneNuma {
			return false
		}
		at := slices.IndexFunc(a.left, func(b deviceGroup) bool { return b.deviceType == r.Type })
		if at < 0 || a.left[at].typeNumber < 0 {
			return false
		}
		if r.Share == 0 {
			if !a.whole(at, list, r) {
				return false
			}
			continue
		}
		w := &a.model.types[a.left[at].typeNumber]
		demand := demandOf(r, w.models)
		device, found := w.values.Pick(&packing.Node{Devices: a.left[at].devices}, &demand)
		if !found || !suits(r, &list[a.left[at].positions[device]]) {
			return false
		}
		a.take(tentativeUse{at, device, r.Share, r.Memory})
	}
	return true
}

// whole is byValue for a request of whole devices.
func (a *allocator) whole(at int, list []cluster.Device, r *cluster.DeviceRequest) bool {
	b := &a.left[at]
	var free [packing.MostDevices]int
	found := 0
	for j := range b.devices[:min(len(b.devices), packing.MostDevices)] {
		if b.devices[j].Free == cluster.WholeDevice && suits(r, &list[b.positions[j]]) {
			free[found] = j
			found++
		}
	}
	if found < r.Count {
		return false
	}
	suited := free[:found]
	if found > r.Count {
		device := func(j int) *cluster.Device { return &list[b.positions[j]] }
		rank := func(j int) int { // as in freeDevices
			there := 0
			for _, o := range suited {
				if device(o).Numa == device(j).Numa {
					there++
				}
			}
			if there >= r.Count {
				return there
			}
			return len(list) + 1
		}
		var ranks [packing.MostDevices]int
		for _, j := range suited {
			ranks[j] = rank(j)
		}
		order := func(i, j int) int {
			v, w := device(i), device(j)
			if c := cmp.Or(cmp.Compare(v.Memory, w.Memory), cmp.Compare(ranks[i], ranks[j]),
				cmp.Compare(v.Numa, w.Numa)); c != 0 {
				return c
			}
			return strings.Compare(v.ID, w.ID)
		}
		if r.Count == 1 {
			suited[0] = slices.MinFunc(suited, order)
		} else {
			slices.SortFunc(suited, order)
		}
	}
	for _, j := range suited[:r.Count] {
		a.take(tentativeUse{at, j, cluster.WholeDevice, 0})
	}
	return true
}

// take charges a device to the tentative allocation.
func (a *allocator) take(p tentativeUse) {
	v := &a.left[p.group].devices[p.device]
	v.Free, v.Memory = v.Free-p.share, v.Memory-p.memory
	a.uses = append(a.uses, p)
}

// assigned allocates the devices that assign chose, for requests that the value model does not cover.
func (a *allocator) assigned(list []cluster.Device, groups []deviceGroup, uses deviceUses) {
	a.left, a.uses = copyDeviceGroups(a.left, groups), a.uses[:0]
	for _, u := range uses {
		for i := range a.left {
			for j, at := range a.left[i].positions {
				if list[at].ID == u.ID {
					a.take(tentativeUse{i, j, u.Share, u.Memory})
				}
			}
		}
	}
}

// chosen returns the devices of the allocation, ordered by ID.
func (a *allocator) chosen(list []cluster.Device) (uses deviceUses) {
	for _, p := range a.uses {
		at := a.left[p.group].positions[p.device]
		uses = uses.add(cluster.DeviceUse{ID: list[at].ID, Share: p.share, Memory: p.memory}, 1)
	}
	return uses
}

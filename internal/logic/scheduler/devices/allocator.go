// Package devices decides which devices of a node a task gets, and what devices are worth to the tasks that are likely
// to come. It sees one node at a time: the list of its devices and what is used of each. It knows no fleet and no task.
package devices

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// Allocator makes tentative allocations: which devices of a node a task would get. One allocator serves a whole cycle;
// its lists hold the result of the last call until the next one.
type Allocator struct {
	Model *ValueModel
	Left  []Group // the devices of the node, with what the allocation leaves free
	uses  []tentativeUse
}

// tentativeUse is a device that a tentative allocation uses.
type tentativeUse struct {
	group, device int
	share         int
	memory        cluster.Bytes
}

// ByValue allocates devices request by request: for a share the device that loses the least value, else whole devices
// with the least memory. It reports whether it could serve all requests.
func (a *Allocator) ByValue(list []cluster.Device, groups []Group, requests []cluster.DeviceRequest) bool {
	a.Left, a.uses = CopyGroups(a.Left, groups), a.uses[:0]
	for i := range requests {
		r := &requests[i]
		if r.OneNuma {
			return false
		}
		at := slices.IndexFunc(a.Left, func(b Group) bool { return b.deviceType == r.Type })
		if at < 0 || a.Left[at].TypeNumber < 0 {
			return false
		}
		if r.Share == 0 {
			if !a.whole(at, list, r) {
				return false
			}
			continue
		}
		w := &a.Model.types[a.Left[at].TypeNumber]
		demand := demandOf(r, w.Models)
		device, found := w.Values.Pick(&packing.Node{Devices: a.Left[at].Devices}, &demand)
		if !found || !Suits(r, &list[a.Left[at].positions[device]]) {
			return false
		}
		a.take(tentativeUse{at, device, r.Share, r.Memory})
	}
	return true
}

// whole is ByValue for a request of whole devices.
func (a *Allocator) whole(at int, list []cluster.Device, r *cluster.DeviceRequest) bool {
	b := &a.Left[at]
	var free [packing.MostDevices]int
	found := 0
	for j := range b.Devices[:min(len(b.Devices), packing.MostDevices)] {
		if b.Devices[j].Free == cluster.WholeDevice && Suits(r, &list[b.positions[j]]) {
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
func (a *Allocator) take(p tentativeUse) {
	v := &a.Left[p.group].Devices[p.device]
	v.Free, v.Memory = v.Free-p.share, v.Memory-p.memory
	a.uses = append(a.uses, p)
}

// Assigned allocates the devices that assign chose, for requests that the value model does not cover.
func (a *Allocator) Assigned(list []cluster.Device, groups []Group, uses Uses) {
	a.Left, a.uses = CopyGroups(a.Left, groups), a.uses[:0]
	for _, u := range uses {
		for i := range a.Left {
			for j, at := range a.Left[i].positions {
				if list[at].ID == u.ID {
					a.take(tentativeUse{i, j, u.Share, u.Memory})
				}
			}
		}
	}
}

// Chosen returns the devices of the allocation, ordered by ID.
func (a *Allocator) Chosen(list []cluster.Device) (uses Uses) {
	for _, p := range a.uses {
		at := a.Left[p.group].positions[p.device]
		uses = uses.Add(cluster.DeviceUse{ID: list[at].ID, Share: p.share, Memory: p.memory}, 1)
	}
	return uses
}

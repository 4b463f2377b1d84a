package devices

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// Group is the devices of one type on a node, with what is free of each.
type Group struct {
	deviceType string
	TypeNumber int32    // the number of the type in the value model; -1 if unknown there
	positions  []uint16 // indices in the node's list of devices
	Devices    []packing.Device
}

// GroupsOf groups a node's devices by type.
func GroupsOf(list []cluster.Device, used Uses, w *ValueModel) (groups []Group) {
	for at := range list {
		d := &list[at]
		i := slices.IndexFunc(groups, func(b Group) bool { return b.deviceType == d.Type })
		if i < 0 {
			i = len(groups)
			groups = append(groups, Group{deviceType: d.Type, TypeNumber: w.Find(d.Type)})
		}
		v := packing.Device{Model: otherModelNumber}
		if groups[i].TypeNumber >= 0 {
			v.Model = modelNumber(w.types[groups[i].TypeNumber].Models, d.Model)
		}
		groups[i].positions, groups[i].Devices = append(groups[i].positions, uint16(at)), append(groups[i].Devices, v)
	}
	UpdateFree(groups, list, used)
	return groups
}

// UpdateFree sets what is free of each device.
func UpdateFree(groups []Group, list []cluster.Device, used Uses) {
	for i := range groups {
		b := &groups[i]
		for j, at := range b.positions {
			d, v := &list[at], &b.Devices[j]
			v.Free, v.Memory = cluster.WholeDevice, d.Memory
			if len(used) == 0 {
				continue
			}
			if u, found := used.Find(d.ID); found {
				v.Free, v.Memory = cluster.WholeDevice-used[u].Share, d.Memory-used[u].Memory
				v.Free = min(v.Free, cluster.WholeDevice-1) // a device with any usage must not count as whole
			}
		}
	}
}

// CopyGroups copies groups into the memory of into, and returns the copy.
func CopyGroups(into, groups []Group) []Group {
	into = slices.Grow(into[:0], len(groups))[:len(groups)]
	for i := range groups {
		devices := append(into[i].Devices[:0], groups[i].Devices...)
		into[i] = groups[i]
		into[i].Devices = devices
	}
	return into
}

// HasFree reports whether a node has free devices for a single request. It agrees with assign for a task with no other
// request.
func HasFree(list []cluster.Device, groups []Group, r *cluster.DeviceRequest) bool {
	for i := range groups {
		b := &groups[i]
		if b.deviceType != r.Type {
			continue
		}
		free := 0
		for j := range b.Devices {
			v := &b.Devices[j]
			if r.Share > 0 && v.Free >= r.Share && v.Memory >= r.Memory && Suits(r, &list[b.positions[j]]) {
				return true
			}
			if r.Share == 0 && v.Free == cluster.WholeDevice && Suits(r, &list[b.positions[j]]) {
				if free++; free >= r.Count {
					return true
				}
			}
		}
	}
	return false
}

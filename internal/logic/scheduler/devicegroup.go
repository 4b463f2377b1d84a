package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
)

// deviceGroup is the devices of one type on a node, with what is free of each.
type deviceGroup struct {
	deviceType string
	typeNumber int32    // the number of the type in the value model; -1 if unknown there
	positions  []uint16 // indices in the node's list of devices
	devices    []packing.Device
}

// groupDevices groups a node's devices by type.
func groupDevices(list []cluster.Device, used deviceUses, w *ValueModel) (groups []deviceGroup) {
	for at := range list {
		d := &list[at]
		i := slices.IndexFunc(groups, func(b deviceGroup) bool { return b.deviceType == d.Type })
		if i < 0 {
			i = len(groups)
			groups = append(groups, deviceGroup{deviceType: d.Type, typeNumber: w.find(d.Type)})
		}
		v := packing.Device{Model: otherModelNumber}
		if groups[i].typeNumber >= 0 {
			v.Model = modelNumber(w.types[groups[i].typeNumber].models, d.Model)
		}
		groups[i].positions, groups[i].devices = append(groups[i].positions, uint16(at)), append(groups[i].devices, v)
	}
	updateFreeDevices(groups, list, used)
	return groups
}

// updateFreeDevices sets what is free of each device.
func updateFreeDevices(groups []deviceGroup, list []cluster.Device, used deviceUses) {
	for i := range groups {
		b := &groups[i]
		for j, at := range b.positions {
			d, v := &list[at], &b.devices[j]
			v.Free, v.Memory = cluster.WholeDevice, d.Memory
			if len(used) == 0 {
				continue
			}
			if u, found := used.find(d.ID); found {
				v.Free, v.Memory = cluster.WholeDevice-used[u].Share, d.Memory-used[u].Memory
				v.Free = min(v.Free, cluster.WholeDevice-1) // a device with any usage must not count as whole
			}
		}
	}
}

// copyDeviceGroups copies groups into the memory of into, and returns the copy.
func copyDeviceGroups(into, groups []deviceGroup) []deviceGroup {
	into = slices.Grow(into[:0], len(groups))[:len(groups)]
	for i := range groups {
		devices := append(into[i].devices[:0], groups[i].devices...)
		into[i] = groups[i]
		into[i].devices = devices
	}
	return into
}

// hasFree reports whether a node has free devices for a single request. It agrees with assign for a task with no other
// request.
func hasFree(list []cluster.Device, groups []deviceGroup, r *cluster.DeviceRequest) bool {
	for i := range groups {
		b := &groups[i]
		if b.deviceType != r.Type {
			continue
		}
		free := 0
		for j := range b.devices {
			v := &b.devices[j]
			if r.Share > 0 && v.Free >= r.Share && v.Memory >= r.Memory && suits(r, &list[b.positions[j]]) {
				return true
			}
			if r.Share == 0 && v.Free == cluster.WholeDevice && suits(r, &list[b.positions[j]]) {
				if free++; free >= r.Count {
					return true
				}
			}
		}
	}
	return false
}

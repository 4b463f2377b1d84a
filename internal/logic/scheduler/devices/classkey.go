package devices

import (
	"cmp"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/packing"
	"github.com/berthd/berth/internal/logic/scheduler/encode"
)

// AppendClassKey appends what the device class of a node depends on beside its shape: its devices and what is
// free of each. Equal devices of one type are sorted. Devices that differ keep their order, because list order and ID
// order decide between devices that both suit.
func AppendClassKey(b []byte, list []cluster.Device, groups []Group, used Uses) []byte {
	order := make([]int, 0, 8)
	for i := range groups {
		order = append(order, i)
	}
	slices.SortFunc(order, func(i, j int) int { return strings.Compare(groups[i].deviceType, groups[j].deviceType) })
	for _, i := range order {
		b = appendDeviceGroupKey(b, list, &groups[i], used)
	}
	return b
}

// devicesAlike reports whether the devices of one type differ only in their usage and their NUMA node, and are few
// enough for package packing.
func devicesAlike(list []cluster.Device, v *Group) bool {
	first := &list[v.positions[0]]
	return len(v.positions) <= packing.MostDevices && !slices.ContainsFunc(v.positions, func(at uint16) bool {
		d := &list[at]
		return d.Model != first.Model || d.Memory != first.Memory
	})
}

// deviceState is the part of a device's state that the key of a device class contains.
type deviceState struct {
	numa, share int
	memory      cluster.Bytes
}

func appendDeviceGroupKey(b []byte, list []cluster.Device, v *Group, used Uses) []byte {
	first := &list[v.positions[0]]
	b = encode.Number(encode.Text(b, v.deviceType), uint64(len(v.positions)))
	b = encode.Number(encode.Text(b, first.Model), uint64(first.Memory))
	all := make([]deviceState, 0, 16)
	for _, at := range v.positions {
		d := &list[at]
		p := deviceState{numa: d.Numa}
		if len(used) > 0 {
			u := used.of(d.ID)
			p.share, p.memory = u.Share, u.Memory
		}
		all = append(all, p)
	}
	alike := devicesAlike(list, v)
	if alike {
		slices.SortFunc(all, func(a, b deviceState) int {
			return cmp.Or(cmp.Compare(a.numa, b.numa), cmp.Compare(a.share, b.share), cmp.Compare(a.memory, b.memory))
		})
	}
	for _, p := range all {
		b = encode.Number(encode.Number(encode.Number(b, uint64(p.numa)), uint64(p.share)), uint64(p.memory))
	}
	if alike {
		return b
	}
	byID := slices.Clone(v.positions)
	slices.SortFunc(byID, func(i, j uint16) int { return strings.Compare(list[i].ID, list[j].ID) })
	for i, at := range v.positions {
		d := &list[at]
		b = encode.Number(encode.Number(encode.Text(b, d.Model), uint64(d.Memory)), uint64(byID[i]-v.positions[0]))
	}
	return b
}

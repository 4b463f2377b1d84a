package fleet

import (
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/encode"
)

// classKey appends all that the node class of a node depends on.
func classKey(b []byte, n *Node, labels cluster.Labels, shape cluster.Demand) []byte {
	text := func(s string) { b = encode.Text(b, s) }
	text(string(n.State))
	flags := byte(0)
	if n.Cordon {
		flags |= 1
	}
	if n.Drain {
		flags |= 2
	}
	b = append(b, flags)
	text(n.Pool)
	b = encode.Number(b, uint64(len(n.Taints)))
	for _, t := range n.Taints {
		text(t.Key)
		text(t.Value)
		text(string(t.Effect))
	}
	b = reservedKey(b, n.Reserved)
	text(n.Arch)
	text(n.OS)
	text(n.Kernel)
	b = encode.Number(b, uint64(len(n.Executors)))
	for _, e := range n.Executors {
		text(e)
	}
	b = encode.Labels(b, labels)
	b = devicesKey(b, n.Devices)
	b = encode.Number(b, uint64(len(n.Volumes)))
	for _, v := range n.Volumes {
		text(v)
	}
	b = foldersKey(b, n.Folders)
	b = encode.Number(b, uint64(len(n.Networks)))
	for _, f := range n.Networks {
		text(string(f.Mode))
		text(f.Lacks)
	}
	for _, amount := range []int64{int64(shape.CPU), int64(shape.Memory), int64(shape.Disk)} {
		b = encode.Number(b, uint64(amount))
	}
	return b
}

// devicesKey appends devices without their IDs.
func devicesKey(b []byte, devices []cluster.Device) []byte {
	b = encode.Number(b, uint64(len(devices)))
	if len(devices) == 0 {
		return b
	}
	keys := make([]string, 0, len(devices))
	for i := range devices {
		d := &devices[i]
		key := encode.Number(encode.Text(encode.Text(nil, d.Type), d.Model), uint64(d.Memory))
		keys = append(keys, string(encode.Number(key, uint64(d.Numa))))
	}
	slices.Sort(keys)
	for _, key := range keys {
		b = append(b, key...)
	}
	return b
}

// foldersKey appends what a node lends of its folders. Sticky copies are not part of it: only node names distinguish
// them.
func foldersKey(b []byte, f *cluster.FolderFacts) []byte {
	if f == nil {
		return append(b, 0)
	}
	b = encode.Number(append(b, 1), uint64(len(f.HostVolumes)))
	for _, v := range f.HostVolumes {
		kind := byte(0)
		if v.ReadOnly {
			kind = 1
		}
		b = append(encode.Text(b, v.Name), kind)
	}
	b = encode.Number(b, uint64(len(f.Paths)))
	for _, path := range f.Paths {
		b = encode.Text(b, path)
	}
	return b
}

// reservedKey appends what a node class depends on of its reservations.
func reservedKey(b []byte, list []*cluster.Reservation) []byte {
	b = encode.Number(b, uint64(len(list)))
	for _, r := range list {
		b = encode.Text(b, r.Name)
		for _, at := range []time.Time{r.From, r.Until} {
			b = encode.Number(encode.Number(b, uint64(at.Unix())), uint64(at.Nanosecond()))
		}
		b = encode.Number(b, uint64(r.Lead))
		b = encode.Number(b, uint64(len(r.Clusters)))
		for _, in := range r.Clusters {
			b = encode.Text(b, in)
		}
		b = encode.Labels(b, r.Labels)
	}
	return b
}

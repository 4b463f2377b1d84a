package scheduler

import (
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// classKey appends all that the node class of a node depends on.
func classKey(b []byte, n *Node, labels cluster.Labels, shape cluster.Demand) []byte {
	text := func(s string) { b = textKey(b, s) }
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
	b = appendNumber(b, uint64(len(n.Taints)))
	for _, t := range n.Taints {
		text(t.Key)
		text(t.Value)
		text(string(t.Effect))
	}
	b = reservedKey(b, n.Reserved)
	text(n.Arch)
	text(n.OS)
	text(n.Kernel)
	b = appendNumber(b, uint64(len(n.Executors)))
	for _, e := range n.Executors {
		text(e)
	}
	b = labelsKey(b, labels)
	b = devicesKey(b, n.Devices)
	b = appendNumber(b, uint64(len(n.Volumes)))
	for _, v := range n.Volumes {
		text(v)
	}
	b = foldersKey(b, n.Folders)
	b = appendNumber(b, uint64(len(n.Networks)))
	for _, f := range n.Networks {
		text(string(f.Mode))
		text(f.Lacks)
	}
	for _, amount := range []int64{int64(shape.CPU), int64(shape.Memory), int64(shape.Disk)} {
		b = appendNumber(b, uint64(amount))
	}
	return b
}

// devicesKey appends devices without their IDs.
func devicesKey(b []byte, devices []cluster.Device) []byte {
	b = appendNumber(b, uint64(len(devices)))
	if len(devices) == 0 {
		return b
	}
	keys := make([]string, 0, len(devices))
	for i := range devices {
		d := &devices[i]
		key := appendNumber(textKey(textKey(nil, d.Type), d.Model), uint64(d.Memory))
		keys = append(keys, string(appendNumber(key, uint64(d.Numa))))
	}
	slices.Sort(keys)
	for _, key := range keys {
		b = append(b, key...)
	}
	return b
}

// foldersKey appends what a node lends of its folders. Sticky copies are not part of it: only node names tell them
// apart.
func foldersKey(b []byte, f *cluster.FolderFacts) []byte {
	if f == nil {
		return append(b, 0)
	}
	b = appendNumber(append(b, 1), uint64(len(f.HostVolumes)))
	for _, v := range f.HostVolumes {
		kind := byte(0)
		if v.ReadOnly {
			kind = 1
		}
		b = append(textKey(b, v.Name), kind)
	}
	b = appendNumber(b, uint64(len(f.Paths)))
	for _, path := range f.Paths {
		b = textKey(b, path)
	}
	return b
}

// reservedKey appends what a node class depends on of its reservations.
func reservedKey(b []byte, list []*cluster.Reservation) []byte {
	b = appendNumber(b, uint64(len(list)))
	for _, r := range list {
		b = textKey(b, r.Name)
		for _, at := range []time.Time{r.From, r.Until} {
			b = appendNumber(appendNumber(b, uint64(at.Unix())), uint64(at.Nanosecond()))
		}
		b = appendNumber(b, uint64(r.Lead))
		b = appendNumber(b, uint64(len(r.Clusters)))
		for _, in := range r.Clusters {
			b = textKey(b, in)
		}
		b = labelsKey(b, r.Labels)
	}
	return b
}

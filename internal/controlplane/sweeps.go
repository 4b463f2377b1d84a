package controlplane

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/store"
)

// Events of the disks of nodes.
const (
	eventDiskFreed = "node.disk-freed"
	eventDiskFull  = "node.disk-full"
)

// disks is what was told of the disks of the nodes' images and artifacts.
type disks struct {
	// freed holds the message of each node's newest event, nil before anybody asked: then the events of the leaders
	// before are looked through, so that none is told twice. It says when the sweep was, so two of one node are never
	// alike.
	freed map[string]string
	full  map[string]bool
}

// sweeps takes note of what a node's newest sign of life says of its disks, and tells of it.
func (w *watch) sweeps(snap *store.Snapshot, name string, in *watcher.Input, out *judged) {
	stats := statsOf(in)
	if stats == nil {
		return
	}
	tell := func(kind, message string) {
		e := cluster.Event{Type: kind, Node: name, Reason: cluster.ReasonShortDisk, Message: message}
		out.units = append(out.units, store.Unit{Events: []cluster.Event{e}})
	}
	if s := stats.Sweep; s != nil {
		if w.disks.freed == nil {
			w.disks.freed = freedBefore(snap)
		}
		if message := s.Message(); w.disks.freed[name] != message {
			w.disks.freed[name] = message
			tell(eventDiskFreed, message)
		}
	}
	switch full := stats.DiskFull; {
	case full == nil:
		delete(w.disks.full, name)
	case !w.disks.full[name]:
		w.disks.full[name] = true
		tell(eventDiskFull, clipText(full.Message))
	}
}

// statsOf returns the newest measurement of the node's present session, or nil.
func statsOf(in *watcher.Input) *cluster.NodeStats {
	if in.Pulse == nil || in.Status == nil || in.Pulse.Session != in.Status.Session {
		return nil
	}
	return in.Pulse.Stats
}

// freedBefore returns the newest of these events of each node.
func freedBefore(snap *store.Snapshot) map[string]string {
	told := map[string]string{}
	for b := range snap.EventBatches() {
		for i := range b.Value.Events {
			if e := &b.Value.Events[i]; e.Type == eventDiskFreed {
				told[e.Node] = e.Message
			}
		}
	}
	return told
}

// clipText bounds what an agent says.
func clipText(s string) string {
	const most = 1000
	return s[:min(len(s), most)]
}

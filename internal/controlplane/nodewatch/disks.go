package nodewatch

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/shorten"
	"github.com/berthd/berth/internal/store"
)

// Events of the disks of nodes.
const (
	eventDiskFreed = "node.disk-freed"
	eventDiskFull  = "node.disk-full"
)

// disks is what was published of the nodes' disks for images and artifacts.
type disks struct {
	// freed holds the message of each node's newest event, so that none is published twice. It is nil before its first
	// use; then the events of former leaders are read. A message holds the time of its sweep, so two of one node are
	// never equal.
	freed map[string]string
	full  map[string]bool
}

// noteDisks publishes changes of a node's disks from its newest report.
func (w *Watch) noteDisks(snap *store.Snapshot, name string, in *watcher.Input, out *Judged) {
	stats := statsOf(in)
	if stats == nil {
		return
	}
	publish := func(kind, message string) {
		e := cluster.Event{Type: kind, Node: name, Reason: cluster.ReasonShortDisk, Message: message}
		out.Units = append(out.Units, store.Unit{Events: []cluster.Event{e}})
	}
	if s := stats.Sweep; s != nil {
		if w.disks.freed == nil {
			w.disks.freed = freedBefore(snap)
		}
		if message := s.Message(); w.disks.freed[name] != message {
			w.disks.freed[name] = message
			publish(eventDiskFreed, message)
		}
	}
	switch full := stats.DiskFull; {
	case full == nil:
		delete(w.disks.full, name)
	case !w.disks.full[name]:
		w.disks.full[name] = true
		publish(eventDiskFull, clip(full.Message))
	}
}

// statsOf returns the newest statistics of the node's present session, or nil.
func statsOf(in *watcher.Input) *cluster.NodeStats {
	if in.Pulse == nil || in.Status == nil || in.Pulse.Session != in.Status.Session {
		return nil
	}
	return in.Pulse.Stats
}

// freedBefore returns the message of the newest eventDiskFreed of each node.
func freedBefore(snap *store.Snapshot) map[string]string {
	messages := map[string]string{}
	for b := range snap.EventBatches() {
		for i := range b.Value.Events {
			if e := &b.Value.Events[i]; e.Type == eventDiskFreed {
				messages[e.Node] = e.Message
			}
		}
	}
	return messages
}

// clip shortens a text of an agent to at most 1,000 bytes.
func clip(s string) string { return shorten.Start(s, 1000) }

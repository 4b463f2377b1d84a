package controlplane

import (
	"maps"
	"slices"

	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// setDaemonFacts takes the facts of a node and notes whether they have changed. It is called before the fleet learns of
// the node; now is nil for a node that is not the domain's.
func (l *loop) setDaemonFacts(name string, now *scheduler.Node, facts daemonNodeFacts) {
	was, _, had := l.fleet.Node(name)
	if had != (now != nil) || l.daemonFacts[name] != facts || had && !equalForDaemons(&was, now) {
		l.daemonFactsChanged = true
	}
	if now != nil && (!had || !equalForDaemons(&was, now)) {
		l.violations.nodes[name] = true
	}
	delete(l.daemonFacts, name)
	if facts != (daemonNodeFacts{}) {
		l.daemonFacts[name] = facts
	}
}

// equalForDaemons reports whether all that constraints examine is equal.
func equalForDaemons(a, b *scheduler.Node) bool {
	return a.Arch == b.Arch && a.OS == b.OS && a.Kernel == b.Kernel && slices.Equal(a.Executors, b.Executors) &&
		maps.Equal(a.Labels, b.Labels) && a.Pool == b.Pool && slices.Equal(a.Taints, b.Taints) &&
		slices.Equal(a.Devices, b.Devices) && slices.Equal(a.Networks, b.Networks) &&
		a.Folders.SameForPlacement(b.Folders)
}

// markChangedDaemons marks the daemons after nodes came, went or changed.
func (l *loop) markChangedDaemons(snap *store.Snapshot) {
	if !l.daemonFactsChanged {
		return
	}
	l.daemonFactsChanged = false
	l.queue.markDaemons(snap)
}

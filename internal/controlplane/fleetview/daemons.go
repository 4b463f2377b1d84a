package fleetview

import (
	"maps"
	"slices"

	"github.com/berthd/berth/internal/controlplane/nodewatch"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// daemonNodes holds, for each node, the facts that decide which daemons run there, in addition to those that the fleet
// holds.
type daemonNodes struct {
	facts map[string]nodewatch.DaemonFacts
	// changed says that all daemons are to be decided for again.
	changed bool
}

// setDaemonFacts takes the facts of a node and notes whether they have changed. It is called before the fleet learns of
// the node; now is nil for a node that is not the domain's.
func (v *View) setDaemonFacts(name string, now *scheduler.Node, facts nodewatch.DaemonFacts) {
	was, _, had := v.Fleet.Node(name)
	if had != (now != nil) || v.daemons.facts[name] != facts || had && !equalForDaemons(&was, now) {
		v.daemons.changed = true
	}
	if now != nil && (!had || !equalForDaemons(&was, now)) {
		v.Rechecks.nodes[name] = true
	}
	delete(v.daemons.facts, name)
	if facts != (nodewatch.DaemonFacts{}) {
		v.daemons.facts[name] = facts
	}
}

// TakeDaemonsChanged reports whether nodes came, went or changed for daemons since the last call.
func (v *View) TakeDaemonsChanged() bool {
	changed := v.daemons.changed
	v.daemons.changed = false
	return changed
}

// DaemonNodes yields the nodes of the fleet with the facts that the fleet does not hold, ordered by name.
func (v *View) DaemonNodes(yield func(reconciler.DaemonNode) bool) {
	for _, name := range v.Fleet.Nodes() {
		n, _, _ := v.Fleet.Node(name)
		facts := v.daemons.facts[name]
		d := reconciler.DaemonNode{Node: &n, Gone: facts.Gone, Silent: facts.Silent, Alone: facts.OnlyDaemonsLeft}
		if !yield(d) {
			return
		}
	}
}

// equalForDaemons reports whether all that constraints examine is equal.
func equalForDaemons(a, b *scheduler.Node) bool {
	return a.Arch == b.Arch && a.OS == b.OS && a.Kernel == b.Kernel && slices.Equal(a.Executors, b.Executors) &&
		maps.Equal(a.Labels, b.Labels) && a.Pool == b.Pool && slices.Equal(a.Taints, b.Taints) &&
		slices.Equal(a.Devices, b.Devices) && slices.Equal(a.Networks, b.Networks) &&
		a.Folders.SameForPlacement(b.Folders)
}

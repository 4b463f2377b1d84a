package controlplane

import (
	"cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/external"
	"github.com/berthd/berth/internal/controlplane/fleetview"
	"github.com/berthd/berth/internal/controlplane/gates"
	"github.com/berthd/berth/internal/controlplane/nodewatch"
	"github.com/berthd/berth/internal/controlplane/preemption"
	"github.com/berthd/berth/internal/controlplane/rebalancing"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// observed returns the domain as the leader knows it, for decisions.
func (l *loop) observed(snap *store.Snapshot) *observe.Domain {
	return &observe.Domain{
		Name: l.config.Domain, Snapshot: snap, Incarnation: l.term.fence.Incarnation,
		Since: l.clock.since, ClockSet: l.clock.set, Now: l.clock.now, Without: l.config.Without,
		Leader: leaderInputs{
			nodes: l.nodes, view: l.view, gates: l.gates,
			preemption: l.preemption, violations: l.violations, rebalancing: l.rebalancing, external: l.external,
		},
	}
}

// leaderInputs gives the inputs of decisions that are in no record, from the leader's term. Its methods change nothing.
// It implements observe.Leader.
type leaderInputs struct {
	nodes       *nodewatch.Watch
	view        *fleetview.View
	gates       *gates.Gates
	preemption  *preemption.Preemption
	violations  *fleetview.Violations
	rebalancing *rebalancing.Rebalancing
	external    *external.Scheduler
}

// Absence returns what the silence of a node means for the tasks of an owner of the kind.
func (in leaderInputs) Absence(node string, kind cluster.Kind) watcher.Absence {
	return in.nodes.AbsenceOf(node, kind)
}

// HasReported reports whether the node has sent a full report under this leader.
func (in leaderInputs) HasReported(node string) bool { return in.nodes.HasReported(node) }

// Drain returns the drain of a node, or nil.
func (in leaderInputs) Drain(node string) *cluster.Drain { return in.nodes.DrainOf(node) }

// LeaveReason returns the first reason of these: memory pressure on the node, a task that needs the room, a violation,
// a rebalancing, an external scheduler.
func (in leaderInputs) LeaveReason(row *store.AttemptRow) *reconciler.Leave {
	if p := in.nodes.PressureOn(row); p != nil {
		return reconciler.PressedLeave(row.Node, p)
	}
	return cmp.Or(in.preemption.LeaveReason(row), in.violations.LeaveReason(row), in.rebalancing.LeaveReason(row),
		in.external.LeaveReason(row))
}

// GateResults returns the results for the gates of a service, in the order of its spec.
func (in leaderInputs) GateResults(o cluster.OwnerRef, spec *cluster.Service,
	rollout *cluster.Rollout,
) []cluster.GateResult {
	return in.gates.Results(o, spec, rollout)
}

// DaemonNodes yields the nodes of the fleet with the facts that the fleet does not hold.
func (in leaderInputs) DaemonNodes(yield func(reconciler.DaemonNode) bool) {
	in.view.DaemonNodes(yield)
}

package controlplane

import (
	"cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// observed returns the domain as the leader knows it, for decisions.
func (l *loop) observed(snap *store.Snapshot) *observe.Domain {
	return &observe.Domain{
		Name: l.config.Domain, Snapshot: snap, Leader: leaderInputs{l}, Incarnation: l.fence.Incarnation,
		Since: l.since, Now: l.now, Without: l.config.Without,
	}
}

// leaderInputs gives the inputs of decisions that are in no record, from the leader's term. It implements
// observe.Leader.
type leaderInputs struct{ loop *loop }

func (in leaderInputs) Absence(node string, kind cluster.Kind) watcher.Absence {
	return in.loop.nodes.absenceOf(node, kind)
}

func (in leaderInputs) HasReported(node string) bool { return in.loop.nodes.hasReported(node) }

func (in leaderInputs) Drain(node string) *cluster.Drain { return in.loop.nodes.drainOf(node) }

// LeaveReason returns the first reason of these: memory pressure on the node, a task that needs the room, a violation,
// a rebalancing.
func (in leaderInputs) LeaveReason(row *store.AttemptRow) *reconciler.Leave {
	l := in.loop
	if p := l.nodes.pressureOn(row); p != nil {
		return reconciler.PressedLeave(row.Node, p)
	}
	return cmp.Or(l.preemption.leaveReason(row), l.violations.leaveReason(row), l.rebalancing.leaveReason(row))
}

func (in leaderInputs) GateResults(o cluster.OwnerRef, spec *cluster.Service,
	rollout *cluster.Rollout,
) []cluster.GateResult {
	return in.loop.gates.results(o, spec, rollout)
}

// DaemonNodes yields the nodes of the fleet with the facts that the fleet does not hold.
func (in leaderInputs) DaemonNodes(yield func(reconciler.DaemonNode) bool) {
	in.loop.view.daemonNodes(yield)
}

package feasibility

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
)

// Allows reports whether a node meets what a placement demands of the node itself: its pool, its constraints, and
// tolerated taints. Taints with the effect avoid do not count. If running is true, the task runs there already, and
// only taints that evict count. Other tasks and the state of the node do not matter.
func Allows(p *cluster.Placement, n *fleet.Node, running bool) bool {
	if p.Pool != "" && p.Pool != n.Pool {
		return false
	}
	for _, t := range n.Taints {
		counts := t.Effect == cluster.TaintEvict || t.Effect != cluster.TaintAvoid && !running
		if counts && !slices.ContainsFunc(p.Tolerations, func(o cluster.Toleration) bool { return o.Tolerates(t) }) {
			return false
		}
	}
	return !slices.ContainsFunc(p.Constraints, func(c cluster.Constraint) bool { return !Matches(c, n) })
}

// Unmet returns the first demand on the node itself that the node does not meet, taints aside: the pool or a
// constraint. ok is false if all are met.
func Unmet(p *cluster.Placement, n *fleet.Node) (r cluster.Refusal, ok bool) {
	if p.Pool != "" && p.Pool != n.Pool {
		return cluster.Refusal{Code: cluster.ReasonPool, Detail: p.Pool}, true
	}
	for i := range p.Constraints {
		if !Matches(p.Constraints[i], n) {
			return cluster.Refusal{Code: cluster.ReasonConstraint, Detail: Text(p.Constraints[i])}, true
		}
	}
	return r, false
}

package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// Allows reports whether what a placement demands of a node by itself is met: its pool, its constraints, and that each
// taint of the node is tolerated but those to avoid it; for a task that stands there already, each taint that evicts.
// What else stands on the node is not looked at, nor whether it is ready.
func Allows(p *cluster.Placement, n *Node, stands bool) bool {
	if p.Pool != "" && p.Pool != n.Pool {
		return false
	}
	for _, t := range n.Taints {
		counts := t.Effect == cluster.TaintEvict || t.Effect != cluster.TaintAvoid && !stands
		if counts && !slices.ContainsFunc(p.Tolerations, func(o cluster.Toleration) bool { return o.Tolerates(t) }) {
			return false
		}
	}
	return !slices.ContainsFunc(p.Constraints, func(c cluster.Constraint) bool { return !Matches(c, n) })
}

// Unmet returns what a placement demands of a node by itself and the node lacks, taints aside: its pool, or the first
// constraint. ok is false where it lacks nothing.
func Unmet(p *cluster.Placement, n *Node) (r cluster.Refusal, ok bool) {
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

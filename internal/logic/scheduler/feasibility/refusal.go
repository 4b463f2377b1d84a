package feasibility

import (
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
)

// imageExecutor is the executor that runs images.
const imageExecutor = "containerd"

// Refusal returns why the node refuses the task whatever runs on it, with the constraint or taint as text; or no
// code. It ignores constraints on attributes for which skip returns true; a nil skip ignores none.
func Refusal(p *cluster.Pending, now time.Time, node *fleet.Node, skip func(attribute string) bool,
) (code cluster.ReasonCode, about string) {
	switch {
	case node.State != cluster.NodeReady:
		return cluster.ReasonNodeNotReady, string(node.State)
	case node.Cordon && (node.Drain || !p.Daemon):
		return cluster.ReasonCordoned, ""
	case p.Placement.Pool != "" && p.Placement.Pool != node.Pool:
		return cluster.ReasonPool, node.Pool
	}
	if about := reservedRefusal(p, now, node); about != "" {
		return cluster.ReasonReserved, about
	}
	for _, t := range node.Taints {
		if t.Effect != cluster.TaintAvoid && !tolerated(p.Placement.Tolerations, t) {
			return cluster.ReasonTaint, taintText(t)
		}
	}
	if lacksExecutor(p, node) {
		return cluster.ReasonNoExecutor, ""
	}
	if lacks := cluster.LacksNetwork(node.Networks, p.Network); lacks != "" {
		return cluster.ReasonNetwork, lacks
	}
	for i := range p.Placement.Constraints {
		constraint := &p.Placement.Constraints[i]
		if (skip == nil || !skip(constraint.Attribute)) && !Matches(*constraint, node) {
			return constraintCode(constraint), Text(*constraint)
		}
	}
	return "", ""
}

// lacksExecutor reports whether the node has no executor that can run the task.
func lacksExecutor(p *cluster.Pending, node *fleet.Node) bool {
	return len(node.Executors) == 0 || p.NeedsImage && !slices.Contains(node.Executors, imageExecutor) ||
		p.Plain && !slices.ContainsFunc(node.Executors, func(e string) bool { return e != imageExecutor })
}

func tolerated(tolerations []cluster.Toleration, t cluster.Taint) bool {
	return slices.ContainsFunc(tolerations, func(o cluster.Toleration) bool { return o.Tolerates(t) })
}

func taintText(t cluster.Taint) string {
	if t.Value == "" {
		return t.Key
	}
	return t.Key + "=" + t.Value
}

// reservedRefusal returns the reservation that keeps the node from the task now, as text; or "". It keeps no daemon
// away: what runs on every node runs on reserved nodes, too.
func reservedRefusal(p *cluster.Pending, now time.Time, node *fleet.Node) string {
	named, in := p.Placement.Reservation, ""
	if len(node.Reserved) > 0 {
		in = fleet.ClusterOf(p.Task)
	}
	holds := false
	for _, r := range node.Reserved {
		if r.Admits(in, p.Labels, named) {
			holds = holds || r.Name == named && r.Active(now)
			continue
		}
		if !p.Daemon && r.Refuses(now, p.TimeLimit) {
			return fmt.Sprintf("kept by the reservation %s from %s until %s", r.Name, r.From.UTC().Format(time.RFC3339),
				r.Until.UTC().Format(time.RFC3339))
		}
	}
	if named != "" && !holds {
		return "not kept now by the reservation " + named
	}
	return ""
}

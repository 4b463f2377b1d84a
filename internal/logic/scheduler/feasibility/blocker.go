package feasibility

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
)

// Blocker is one reason for which a node refuses a task.
type Blocker struct {
	cluster.Refusal
	// Number is the index of the unmet demand: in the Constraints, Distinct, Spread or Relations of the task's
	// placement, in its Devices, or in the node's Taints. It is -1 where no list exists, and where other tasks exclude
	// this one.
	Number int
	// Least is the smallest bound of a distinct or a skew that the node would meet.
	Least int
}

// Blockers returns the blockers that do not depend on other tasks: all that Refusal checks, and Only.
func Blockers(p *cluster.Pending, now time.Time, node *fleet.Node) (all []Blocker) {
	add := func(code cluster.ReasonCode, detail string, number int) {
		all = append(all, Blocker{Refusal: cluster.Refusal{Code: code, Detail: detail}, Number: number})
	}
	if p.OnlyNode != "" && p.OnlyNode != node.Name {
		all = append(all, Blocker{Refusal: Elsewhere(p.OnlyNode), Number: -1})
	}
	if node.State != cluster.NodeReady {
		add(cluster.ReasonNodeNotReady, string(node.State), -1)
	}
	if node.Cordon && (node.Drain || !p.Daemon) {
		add(cluster.ReasonCordoned, "", -1)
	}
	if p.Placement.Pool != "" && p.Placement.Pool != node.Pool {
		add(cluster.ReasonPool, node.Pool, -1)
	}
	if about := reservedRefusal(p, now, node); about != "" {
		add(cluster.ReasonReserved, about, -1)
	}
	for i, t := range node.Taints {
		if t.Effect != cluster.TaintAvoid && !tolerated(p.Placement.Tolerations, t) {
			add(cluster.ReasonTaint, taintText(t), i)
		}
	}
	if lacksExecutor(p, node) {
		add(cluster.ReasonNoExecutor, "", -1)
	}
	if lacks := cluster.LacksNetwork(node.Networks, p.Network); lacks != "" {
		add(cluster.ReasonNetwork, lacks, -1)
	}
	for i, constraint := range p.Placement.Constraints {
		if !Matches(constraint, node) {
			add(constraintCode(&constraint), Text(constraint), i)
		}
	}
	return all
}

// Elsewhere is the refusal of all nodes but the one that a task is restricted to.
func Elsewhere(node string) cluster.Refusal {
	return cluster.Refusal{
		Code:   cluster.ReasonConstraint,
		Detail: Text(cluster.Constraint{Attribute: "node.name", Op: cluster.OpEqual, Value: node}),
	}
}

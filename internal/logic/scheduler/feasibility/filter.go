// Package feasibility decides which nodes can run a task, whatever runs on them: by state, pool, reservations of the
// operator, taints, executors, networks and constraints. Package evaluation has the conditions that depend on other
// tasks.
package feasibility

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
)

// Filter says which node classes can run tasks with some demands, whatever runs there. Tasks with equal
// demands share one.
type Filter struct {
	Feasible   []int32 // the node classes with a node that also meets PerNode's fine labels; ascending
	IsFeasible []bool  // by node class, PerNode aside
	Mask       uint64  // bits of the feasible node classes, modulo 64
	// Penalized says, by node class, whether it has a taint with the effect avoid that is not tolerated; nil if none
	// has.
	Penalized []bool
	// PerNode are the constraints on names and fine labels: each node must meet them by itself.
	PerNode []cluster.Constraint
	Fine    bool // some of PerNode are on fine labels
	Nodes   int  // of the feasible node classes
}

// IsPenalized reports whether a taint lets the nodes of a node class come last.
func (s *Filter) IsPenalized(class int32) bool {
	return s.Penalized != nil && s.Penalized[class]
}

// MeetsPerNode reports whether the node meets the constraints on names and fine labels.
func (s *Filter) MeetsPerNode(n *fleet.Node) bool {
	for i := range s.PerNode {
		if !Matches(s.PerNode[i], n) {
			return false
		}
	}
	return true
}

// meetsFineLabels reports whether the node meets the constraints on fine labels.
func (s *Filter) meetsFineLabels(n *fleet.Node) bool {
	for i := range s.PerNode {
		if s.PerNode[i].Attribute != fleet.NodeName && !Matches(s.PerNode[i], n) {
			return false
		}
	}
	return true
}

// VisitNodes calls each for the nodes that would take the task if they were empty, names aside.
func (s *Filter) VisitNodes(nodes *fleet.Overlay, each func(slot int32)) {
	for _, class := range s.Feasible {
		nodes.Fleet.Catalog.Trees[fleet.ByFill][class].Page.Visit(func(slot int32) {
			if s.meetsFineLabels(nodes.Node(slot)) {
				each(slot)
			}
		})
	}
}

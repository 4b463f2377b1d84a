package scheduler

import "github.com/berthd/berth/internal/cluster"

// feasibilityFilter says which node classes can run tasks with some demands, whatever runs there. Tasks with equal
// demands share one.
type feasibilityFilter struct {
	feasible   []int32 // the node classes with a node that also meets perNode's fine labels; ascending
	isFeasible []bool  // by node class, perNode aside
	mask       uint64  // bits of the feasible node classes, modulo 64
	// penalized says, by node class, whether it has a taint with the effect avoid that is not tolerated; nil if none
	// has.
	penalized []bool
	// perNode are the constraints on names and fine labels: each node must meet them by itself.
	perNode []cluster.Constraint
	fine    bool // some of perNode are on fine labels
	nodes   int  // of the feasible node classes
}

// isPenalized reports whether a taint lets the nodes of a node class come last.
func (s *feasibilityFilter) isPenalized(class int32) bool {
	return s.penalized != nil && s.penalized[class]
}

// meetsPerNode reports whether the node meets the constraints on names and fine labels.
func (s *feasibilityFilter) meetsPerNode(n *Node) bool {
	for i := range s.perNode {
		if !Matches(s.perNode[i], n) {
			return false
		}
	}
	return true
}

// meetsFineLabels reports whether the node meets the constraints on fine labels.
func (s *feasibilityFilter) meetsFineLabels(n *Node) bool {
	for i := range s.perNode {
		if s.perNode[i].Attribute != nodeName && !Matches(s.perNode[i], n) {
			return false
		}
	}
	return true
}

// visitNodes calls each for the nodes that would take the task if they were empty, names aside.
func (s *feasibilityFilter) visitNodes(nodes *overlay, each func(slot int32)) {
	for _, class := range s.feasible {
		nodes.fleet.catalog.trees[byFill][class].page.visit(func(slot int32) {
			if s.meetsFineLabels(nodes.node(slot)) {
				each(slot)
			}
		})
	}
}

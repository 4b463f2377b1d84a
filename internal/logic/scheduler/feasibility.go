package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// imageExecutor is the executor that runs images.
const imageExecutor = "containerd"

// nodeName is an attribute in which nodes of one node class always differ, as they do in fine labels.
const nodeName = "node.name"

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

// filterOf returns the filter of the class, and makes it first if needed.
func (y *cycle) filterOf(c *taskClass) *feasibilityFilter {
	if c.filter != nil {
		return c.filter
	}
	y.buffer = filterKey(y.buffer[:0], c.Pending)
	if y.fleet.reserved > 0 {
		y.buffer = admittedKey(y.buffer, c.Pending)
	}
	s, found := y.filters[string(y.buffer)]
	if !found {
		s = y.newFilter(c)
		if y.filters == nil {
			y.filters = map[string]*feasibilityFilter{}
		}
		y.filters[string(y.buffer)] = s
	}
	c.filter = s
	return s
}

func (y *cycle) newFilter(c *taskClass) *feasibilityFilter {
	classes := y.fleet.catalog.classes
	s := &feasibilityFilter{isFeasible: make([]bool, len(classes))}
	for _, constraint := range c.Placement.Constraints {
		if y.fleet.isPerNode(constraint.Attribute) {
			s.perNode = append(s.perNode, constraint)
			s.fine = s.fine || constraint.Attribute != nodeName
		}
	}
	for i := range classes {
		if classes[i].count == 0 {
			continue
		}
		if code, _ := nodeRefusal(c, &classes[i].like, y.fleet.isPerNode); code == "" {
			s.feasible = append(s.feasible, int32(i))
			s.isFeasible[i], s.mask = true, s.mask|1<<(i%64)
			if slices.ContainsFunc(classes[i].like.Taints, func(t cluster.Taint) bool {
				return t.Effect == cluster.TaintAvoid && !tolerated(c.Placement.Tolerations, t)
			}) {
				if s.penalized == nil {
					s.penalized = make([]bool, len(classes))
				}
				s.penalized[i] = true
			}
		}
	}
	y.dropInfeasible(s)
	for _, class := range s.feasible {
		s.nodes += classes[class].count
	}
	return s
}

// filterKey appends all that the filter of a task depends on.
func filterKey(b []byte, p *cluster.Pending) []byte {
	flags := byte(0)
	if p.Daemon {
		flags |= 1
	}
	if p.NeedsImage {
		flags |= 2
	}
	if p.Plain {
		flags |= 4
	}
	b = append(b, flags)
	text := func(s string) { b = textKey(b, s) }
	text(string(p.Network))
	text(p.Placement.Pool)
	text(p.Placement.Reservation)
	b = appendNumber(b, uint64(len(p.Placement.Tolerations)))
	for _, t := range p.Placement.Tolerations {
		text(t.Key)
		text(t.Value)
		text(string(t.Effect))
		b = appendNumber(b, uint64(t.For))
	}
	for i := range p.Placement.Constraints {
		constraint := &p.Placement.Constraints[i]
		text(constraint.Attribute)
		text(string(constraint.Op))
		text(constraint.Value)
		b = appendNumber(b, uint64(len(constraint.Values)))
		for _, v := range constraint.Values {
			text(v)
		}
	}
	return b
}

// nodeRefusal returns why the node refuses the class whatever runs on it, with the constraint or taint as text; or no
// code. It ignores constraints on attributes for which skip returns true; a nil skip ignores none.
func nodeRefusal(c *taskClass, node *Node, skip func(attribute string) bool) (code cluster.ReasonCode, about string) {
	switch {
	case node.State != cluster.NodeReady:
		return cluster.ReasonNodeNotReady, string(node.State)
	case node.Cordon && (node.Drain || !c.Daemon):
		return cluster.ReasonCordoned, ""
	case c.Placement.Pool != "" && c.Placement.Pool != node.Pool:
		return cluster.ReasonPool, node.Pool
	}
	if about := reservedRefusal(c, node); about != "" {
		return cluster.ReasonReserved, about
	}
	for _, t := range node.Taints {
		if t.Effect != cluster.TaintAvoid && !tolerated(c.Placement.Tolerations, t) {
			return cluster.ReasonTaint, taintText(t)
		}
	}
	if lacksExecutor(c.Pending, node) {
		return cluster.ReasonNoExecutor, ""
	}
	if lacks := cluster.LacksNetwork(node.Networks, c.Network); lacks != "" {
		return cluster.ReasonNetwork, lacks
	}
	for i := range c.Placement.Constraints {
		constraint := &c.Placement.Constraints[i]
		if (skip == nil || !skip(constraint.Attribute)) && !Matches(*constraint, node) {
			return constraintCode(constraint), Text(*constraint)
		}
	}
	return "", ""
}

// lacksExecutor reports whether the node has no executor that can run the task.
func lacksExecutor(p *cluster.Pending, node *Node) bool {
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

// meetsPerNode reports whether the node meets the constraints on names and fine labels.
func (y *cycle) meetsPerNode(s *feasibilityFilter, slot int32) bool {
	for i := range s.perNode {
		if !Matches(s.perNode[i], y.node(slot)) {
			return false
		}
	}
	return true
}

// maxNamedNodes is the largest number of nodes that a search judges one by one because a constraint names their values.
const maxNamedNodes = 256

// namedNodes returns the only nodes that can be feasible, if the task's demands name them; ok is false if they do not.
func (y *cycle) namedNodes(c *taskClass) (slots []int32, ok bool) {
	if c.OnlyNode != "" {
		return y.slots([]string{c.OnlyNode}), true
	}
	for _, constraint := range y.filterOf(c).perNode {
		if values, few := namedValues(constraint); few {
			if slots := y.nodesWith(constraint.Attribute, values); len(slots) <= maxNamedNodes {
				return slots, true
			}
		}
	}
	for i := range c.relations {
		if t := &c.relations[i]; t.Required && !t.Away && t.table == nil && !t.met(0) {
			for slot := range t.nodes { // order-free: the best is taken
				slots = append(slots, slot)
			}
			return slots, true
		}
	}
	return nil, false
}

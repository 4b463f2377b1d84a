package scheduler

import (
	"maps"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// label counts the values of one label on the nodes of a fleet. A label is fine if it has very many values, such as
// names of machines: it would make nearly as many node classes as there are nodes. Fine labels are per-node attributes:
// nodes of one node class differ in them, and an index gives the nodes of each value.
type label struct {
	nodes map[string]int32 // by value, the number of nodes
	fine  bool
	at    map[string][]int32 // of a fine label: the slots by value, "" for nodes without it; unordered
}

// Limits at which a label becomes fine or coarse. They are apart because a change rebuilds all node classes: a fleet
// that grows and shrinks must not change it again and again.
const (
	fineMinValues, fineMaxNodesPerValue     = 64, 8   // above so many values of fewer nodes on average
	fineSureValues                          = 256     // above so many values in any case
	coarseMaxValues, coarseMinNodesPerValue = 128, 32 // coarse: up to so many values of more nodes on average
)

// shouldBeFine reports whether the label should be fine in a fleet of so many nodes.
func (l *label) shouldBeFine(nodes int) bool {
	values := len(l.nodes)
	if l.fine {
		return values > coarseMaxValues || values*coarseMinNodesPerValue >= nodes
	}
	return values > fineSureValues || values > fineMinValues && values*fineMaxNodesPerValue > nodes
}

// noteLabels counts the labels of a node, or with a sign of -1 removes them.
func (f *Fleet) noteLabels(i int32, labels cluster.Labels, sign int32) {
	g := &f.catalog
	for _, key := range g.fines {
		value, at := labels[key], g.labels[key].at
		if sign > 0 {
			at[value] = append(at[value], i)
			continue
		}
		last := len(at[value]) - 1
		at[value][slices.Index(at[value], i)] = at[value][last]
		if at[value] = at[value][:last]; last == 0 {
			delete(at, value)
		}
	}
	for key, value := range labels { // order-free: counted
		l := g.labels[key]
		if l == nil {
			l = &label{nodes: map[string]int32{}}
			g.labels[key] = l
		}
		if l.nodes[value] += sign; l.nodes[value] == 0 {
			delete(l.nodes, value)
		}
		if len(l.nodes) == 0 {
			delete(g.labels, key)
			g.fines = slices.DeleteFunc(g.fines, func(k string) bool { return k == key })
		}
	}
}

// updateFineLabels makes labels of a node fine or coarse as their counts demand.
func (f *Fleet) updateFineLabels(labels cluster.Labels) {
	var changed []string
	for key := range labels { // order-free: each for itself
		if l := f.catalog.labels[key]; l.fine != l.shouldBeFine(f.names.count) {
			changed = append(changed, key)
		}
	}
	if len(changed) > 0 {
		f.switchFineLabels(changed)
	}
}

// switchFineLabels makes fine labels coarse and coarse ones fine, and rebuilds the node classes.
func (f *Fleet) switchFineLabels(keys []string) {
	g := &f.catalog
	for _, key := range keys {
		l := g.labels[key]
		l.fine, l.at = !l.fine, nil
		g.fines = slices.DeleteFunc(g.fines, func(k string) bool { return k == key })
		if l.fine {
			g.fines = append(g.fines, key)
			slices.Sort(g.fines)
			l.at = map[string][]int32{}
			for i := range f.names.all {
				value := f.slots[i].node.Labels[key]
				l.at[value] = append(l.at[value], i)
			}
		}
	}
	for i := range f.names.all {
		for order := range orders {
			f.removeFromTree(order, i)
		}
		f.leaveDeviceClass(i)
		g.leave(f.loads[i].class)
	}
	for i := range f.names.all {
		l := &f.loads[i]
		l.class = g.enter(&f.slots[i].node)
		g.rekey(l)
		for order := range orders {
			f.addToTree(order, i)
		}
		f.updateDeviceClass(i, true)
	}
}

// coarseLabels returns the labels that are not fine.
func (g *catalog) coarseLabels(labels cluster.Labels) cluster.Labels {
	if !slices.ContainsFunc(g.fines, func(key string) bool { _, found := labels[key]; return found }) {
		return labels
	}
	labels = maps.Clone(labels)
	for _, key := range g.fines {
		delete(labels, key)
	}
	return labels
}

func (g *catalog) cloneLabels() map[string]*label {
	c := make(map[string]*label, len(g.labels))
	for key, l := range g.labels { // order-free: a copy
		o := &label{nodes: maps.Clone(l.nodes), fine: l.fine}
		if l.fine {
			o.at = make(map[string][]int32, len(l.at))
			for value, slots := range l.at { // order-free: a copy
				o.at[value] = slices.Clone(slots)
			}
		}
		c[key] = o
	}
	return c
}

// fine returns the label that an attribute refers to if it is fine, else nil.
func (f *Fleet) fine(attribute string) *label {
	if len(f.catalog.fines) == 0 {
		return nil
	}
	key, found := strings.CutPrefix(attribute, "label.")
	if attribute == "node.class" {
		key, found = classLabel, true
	}
	if l := f.catalog.labels[key]; found && l != nil && l.fine {
		return l
	}
	return nil
}

// isPerNode reports whether nodes of one node class may differ in the attribute.
func (f *Fleet) isPerNode(attribute string) bool {
	return attribute == nodeName || f.fine(attribute) != nil
}

// nodesWith returns the nodes that have one of the values for a per-node attribute.
func (y *cycle) nodesWith(attribute string, values []string) (slots []int32) {
	if attribute == nodeName {
		return y.slots(values)
	}
	l := y.fleet.fine(attribute)
	for i, value := range values {
		if !slices.Contains(values[:i], value) {
			slots = append(slots, l.at[value]...)
		}
	}
	return slots
}

// peers returns the nodes with the same value of a fine label as the node.
func (y *cycle) peers(attribute string, slot int32) []int32 {
	return y.fleet.fine(attribute).at[valueOf(y.node(slot), attribute)]
}

// visitFeasible yields the nodes that would take tasks of the class if they were empty, names aside.
func (y *cycle) visitFeasible(c *taskClass, yield func(slot int32)) {
	s := y.filterOf(c)
	for _, class := range s.feasible {
		y.visit(y.fleet.catalog.trees[byFill][class].page, func(slot int32) {
			if y.meetsFineLabels(s, slot) {
				yield(slot)
			}
		})
	}
}

// meetsFineLabels reports whether the node meets the filter's constraints on fine labels.
func (y *cycle) meetsFineLabels(s *feasibilityFilter, slot int32) bool {
	for i := range s.perNode {
		if s.perNode[i].Attribute != nodeName && !Matches(s.perNode[i], y.node(slot)) {
			return false
		}
	}
	return true
}

// dropInfeasible removes the node classes without a node that meets the filter's constraints on fine labels.
func (y *cycle) dropInfeasible(s *feasibilityFilter) {
	var some []int32
	fine, all := false, true
	for _, constraint := range s.perNode {
		if constraint.Attribute == nodeName {
			continue
		}
		fine = true
		if values, few := namedValues(constraint); few && all {
			some, all = y.nodesWith(constraint.Attribute, values), false
		}
	}
	if !fine {
		return
	}
	meets := make([]bool, len(s.isFeasible))
	look := func(slot int32) bool {
		class := y.fleet.loads[slot].class
		if class >= 0 && s.isFeasible[class] && !meets[class] && y.meetsFineLabels(s, slot) {
			meets[class] = true
		}
		return true
	}
	if all {
		y.fleet.names.all(look)
	}
	for _, slot := range some {
		look(slot)
	}
	s.feasible = slices.DeleteFunc(s.feasible, func(class int32) bool { return !meets[class] })
}

// namedValues returns the only values that meet a constraint; few is false if the constraint does not name them.
func namedValues(c cluster.Constraint) (values []string, few bool) {
	switch c.Op {
	case cluster.OpEqual, "":
		return []string{c.Value}, true
	case cluster.OpIn:
		return c.Values, true
	case cluster.OpNotEqual, cluster.OpNotIn, cluster.OpExists, cluster.OpLess, cluster.OpMore, cluster.OpAtLeast,
		cluster.OpAtMost:
	}
	return nil, false
}

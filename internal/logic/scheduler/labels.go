package scheduler

import (
	"maps"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// label is what the nodes of a fleet have for one of their labels. A label of so many values that it would make nearly
// as many node classes as there are nodes, such as the name of a machine, is fine: nodes of one class differ in it, as
// they do in their names, and it is known for each value which nodes have it.
type label struct {
	nodes map[string]int32 // by value, how many have it
	fine  bool
	at    map[string][]int32 // while it is fine, by value the slots, of "" those without the label; unordered
}

// When labels become fine, and when they are no longer: the two lie apart so that a fleet that grows and shrinks does
// not change its mind all the time, which takes as long as to make it anew.
const (
	fineFrom, fineMostly = 64, 8   // beyond so many values if a value has fewer nodes than that,
	fineAlways           = 256     // and beyond so many in any case
	coarseTo, coarseOver = 128, 32 // up to so many values if each has more nodes than that
)

// shouldBeFine says so of a label of a fleet of so many nodes.
func (l *label) shouldBeFine(nodes int) bool {
	values := len(l.nodes)
	if l.fine {
		return values > coarseTo || values*coarseOver >= nodes
	}
	return values > fineAlways || values > fineFrom && values*fineMostly > nodes
}

// noteLabels counts the labels of a node in, or with a sign of -1 out.
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

// refine makes labels of a node fine, or not, as they should be.
func (f *Fleet) refine(labels cluster.Labels) {
	var changed []string
	for key := range labels { // order-free: each for itself
		if l := f.catalog.labels[key]; l.fine != l.shouldBeFine(f.names.count) {
			changed = append(changed, key)
		}
	}
	if len(changed) > 0 {
		f.turnOver(changed)
	}
}

// turnOver makes labels fine that are not, and others not, and then the node classes anew.
func (f *Fleet) turnOver(keys []string) {
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
			f.uproot(order, i)
		}
		f.unshelve(i)
		g.leave(f.loads[i].class)
	}
	for i := range f.names.all {
		l := &f.loads[i]
		l.class = g.enter(&f.slots[i].node)
		g.rekey(l)
		for order := range orders {
			f.plant(order, i)
		}
		f.shelve(i, true)
	}
}

// coarse returns the labels in which nodes of one class are alike.
func (g *catalog) coarse(labels cluster.Labels) cluster.Labels {
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

// fine returns the label that an attribute is about, if it is fine, or nil.
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

// parts reports whether nodes of one class differ in the attribute.
func (f *Fleet) parts(attribute string) bool {
	return attribute == nodeName || f.fine(attribute) != nil
}

// having returns the nodes that have one of the values for an attribute that parts node classes.
func (y *cycle) having(attribute string, values []string) (slots []int32) {
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

// peers returns the nodes that have the same value for a fine label as a node.
func (y *cycle) peers(attribute string, slot int32) []int32 {
	return y.fleet.fine(attribute).at[valueOf(y.node(slot), attribute)]
}

// question yields the nodes that come into question for a class: those that would take its tasks if they were empty,
// whatever their names.
func (y *cycle) question(c *class, yield func(slot int32)) {
	s := y.sieveOf(c)
	for _, class := range s.takes {
		y.visit(y.fleet.catalog.trees[byFill][class].page, func(slot int32) {
			if y.meetsFine(s, slot) {
				yield(slot)
			}
		})
	}
}

// meetsFine reports whether the node meets the sieve's demands on fine labels.
func (y *cycle) meetsFine(s *sieve, slot int32) bool {
	for i := range s.named {
		if s.named[i].Attribute != nodeName && !Matches(s.named[i], y.node(slot)) {
			return false
		}
	}
	return true
}

// refine leaves those classes to be searched that have a node which meets the sieve's demands on fine labels.
func (y *cycle) refine(s *sieve) {
	var some []int32
	fine, all := false, true
	for _, constraint := range s.named {
		if constraint.Attribute == nodeName {
			continue
		}
		fine = true
		if values, few := valuesOf(constraint); few && all {
			some, all = y.having(constraint.Attribute, values), false
		}
	}
	if !fine {
		return
	}
	meets := make([]bool, len(s.passes))
	look := func(slot int32) bool {
		if class := y.fleet.loads[slot].class; class >= 0 && s.passes[class] && !meets[class] && y.meetsFine(s, slot) {
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
	s.takes = slices.DeleteFunc(s.takes, func(class int32) bool { return !meets[class] })
}

// valuesOf returns the only values that meet a constraint, where it names them.
func valuesOf(c cluster.Constraint) (values []string, few bool) {
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

package fleet

import (
	"maps"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// Label counts the values of one label on the nodes of a fleet. A label is fine if it has very many values, such as
// names of machines: it would make nearly as many node classes as there are nodes. Fine labels are per-node attributes:
// nodes of one node class differ in them, and an index gives the nodes of each value.
type Label struct {
	nodes map[string]int32 // by value, the number of nodes
	fine  bool
	At    map[string][]int32 // of a fine label: the slots by value, "" for nodes without it; unordered
}

// Limits at which a label becomes fine or coarse. They are apart because a change rebuilds all node classes: a fleet
// that grows and shrinks must not change it again and again.
const (
	fineMinValues, fineMaxNodesPerValue     = 64, 8   // above so many values of fewer nodes on average
	fineSureValues                          = 256     // above so many values in any case
	coarseMaxValues, coarseMinNodesPerValue = 128, 32 // coarse: up to so many values of more nodes on average
)

// shouldBeFine reports whether the label should be fine in a fleet of that many nodes.
func (l *Label) shouldBeFine(nodes int) bool {
	values := len(l.nodes)
	if l.fine {
		return values > coarseMaxValues || values*coarseMinNodesPerValue >= nodes
	}
	return values > fineSureValues || values > fineMinValues && values*fineMaxNodesPerValue > nodes
}

// Labels counts the values of all labels on the nodes that are set, and has the nodes of each value of fine labels.
type Labels struct {
	byKey map[string]*Label
	fines []string // keys of the fine labels, in order
}

// note counts the labels of a node, or with a sign of -1 removes them.
func (x *Labels) note(i int32, labels cluster.Labels, sign int32) {
	for _, key := range x.fines {
		value, at := labels[key], x.byKey[key].At
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
		l := x.byKey[key]
		if l == nil {
			l = &Label{nodes: map[string]int32{}}
			x.byKey[key] = l
		}
		if l.nodes[value] += sign; l.nodes[value] == 0 {
			delete(l.nodes, value)
		}
		if len(l.nodes) == 0 {
			delete(x.byKey, key)
			x.fines = slices.DeleteFunc(x.fines, func(k string) bool { return k == key })
		}
	}
}

// switchFine makes a fine label coarse or a coarse one fine, and returns it. The nodes of a fine label's values are
// empty: the caller fills them in.
func (x *Labels) switchFine(key string) *Label {
	l := x.byKey[key]
	l.fine, l.At = !l.fine, nil
	x.fines = slices.DeleteFunc(x.fines, func(k string) bool { return k == key })
	if l.fine {
		x.fines = append(x.fines, key)
		slices.Sort(x.fines)
		l.At = map[string][]int32{}
	}
	return l
}

// coarse returns the labels that are not fine.
func (x *Labels) coarse(labels cluster.Labels) cluster.Labels {
	if !slices.ContainsFunc(x.fines, func(key string) bool { _, found := labels[key]; return found }) {
		return labels
	}
	labels = maps.Clone(labels)
	for _, key := range x.fines {
		delete(labels, key)
	}
	return labels
}

// clone returns an independent copy.
func (x *Labels) clone() Labels {
	c := Labels{byKey: make(map[string]*Label, len(x.byKey)), fines: slices.Clone(x.fines)}
	for key, l := range x.byKey { // order-free: a copy
		o := &Label{nodes: maps.Clone(l.nodes), fine: l.fine}
		if l.fine {
			o.At = make(map[string][]int32, len(l.At))
			for value, slots := range l.At { // order-free: a copy
				o.At[value] = slices.Clone(slots)
			}
		}
		c.byKey[key] = o
	}
	return c
}

// Fine returns the label that an attribute refers to if it is fine, else nil.
func (x *Labels) Fine(attribute string) *Label {
	if len(x.fines) == 0 {
		return nil
	}
	key, found := strings.CutPrefix(attribute, "label.")
	if attribute == "node.class" {
		key, found = classLabel, true
	}
	if l := x.byKey[key]; found && l != nil && l.fine {
		return l
	}
	return nil
}

// IsPerNode reports whether nodes of one node class may differ in the attribute.
func (x *Labels) IsPerNode(attribute string) bool {
	return attribute == NodeName || x.Fine(attribute) != nil
}

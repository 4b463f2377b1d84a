package taskclass

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
)

// Views makes and updates the views of a cycle. Each view and each group counts, at any time, the tasks that are
// reserved in the fleet and those that the cycle placed.
type Views struct {
	nodes  *fleet.Overlay
	tables map[string]*valueTable // by attribute
	// Relations count the tasks that relations select, Exclusions the tasks that exclude others. Both are by
	// fleet.RelationKey.
	Relations, Exclusions map[string]*relationView
	// spareCounts are counts of finished groups, for reuse.
	spareCounts [][]int32
}

// NewViews returns an empty set of views of tasks on nodes.
func NewViews(nodes *fleet.Overlay) Views { return Views{nodes: nodes} }

// table returns the table of an attribute that is not per node. It is made once for each cycle.
func (s *Views) table(attribute string) *valueTable {
	if t, found := s.tables[attribute]; found {
		return t
	}
	classes := s.nodes.Fleet.Catalog.Classes
	t, numbers := &valueTable{Of: make([]int32, len(classes))}, map[string]int32{}
	for i := range classes {
		if classes[i].Count == 0 {
			continue
		}
		v := classes[i].Like.Value(attribute)
		number, found := numbers[v]
		if !found {
			number = int32(len(t.values))
			numbers[v] = number
			t.values = append(t.values, v)
		}
		t.Of[i] = number
	}
	if s.tables == nil {
		s.tables = map[string]*valueTable{}
	}
	s.tables[attribute] = t
	return t
}

func (s *Views) newView(attribute string) *View {
	if attribute == fleet.NodeName {
		return &View{Nodes: map[int32]int32{}}
	}
	if s.nodes.Fleet.Catalog.Labels.Fine(attribute) != nil {
		return &View{Nodes: map[int32]int32{}, fine: attribute}
	}
	t := s.table(attribute)
	return &View{Table: t, Values: make([]int32, len(t.values))}
}

// groupView returns the view that counts the tasks of a group by an attribute.
func (s *Views) groupView(g *Group, attribute string) *View {
	s.findReserved(g)
	if v, found := g.Views[attribute]; found {
		return v
	}
	v := s.newView(attribute)
	if g.SameDefinition != nil {
		for at, tasks := range g.SameDefinition.Counts { // order-free: a sum
			if slices.Contains(g.CountedGenerations, at.Generation()) {
				v.Add(s.nodes, at.Slot(), tasks)
			}
		}
	}
	if g.NoDefinition != nil {
		for at, tasks := range g.NoDefinition.Counts { // order-free: a sum
			v.Add(s.nodes, at.Slot(), tasks)
		}
	}
	for slot, tasks := range g.Placed { // order-free: a sum
		v.Add(s.nodes, slot, tasks)
	}
	if g.Views == nil {
		g.Views = map[string]*View{}
	}
	g.Views[attribute] = v
	return v
}

// findReserved finds the fleet's reservations that count for the group.
func (s *Views) findReserved(g *Group) {
	if g.hasReserved {
		return
	}
	g.hasReserved = true
	p := g.classes[0].Task
	tasks, generation, definition := fleet.TasksOf(p.Task, p.Definition)
	after := generation >= p.Restarted
	if g.SameDefinition = s.nodes.Fleet.ReservedGroups.Of(tasks, definition); g.SameDefinition != nil {
		for _, v := range g.SameDefinition.Generations {
			if (v.Generation >= p.Restarted) == after {
				g.CountedGenerations = append(g.CountedGenerations, v.Generation)
			}
		}
	}
	if definition.Name != "" {
		unknown, _, _ := fleet.TasksOf(p.Task, cluster.Ref{})
		g.NoDefinition = s.nodes.Fleet.ReservedGroups.Of(unknown, cluster.Ref{})
	}
}

// makeCounts stores the results of TasksOn by slot.
func (s *Views) makeCounts(g *Group) {
	if g.counts != nil {
		return
	}
	var counts []int32
	if last := len(s.spareCounts) - 1; last >= 0 {
		counts, s.spareCounts = s.spareCounts[last], s.spareCounts[:last]
		clear(counts)
	} else {
		counts = make([]int32, s.nodes.Fleet.SlotCount())
	}
	for slot := range g.Nodes {
		counts[slot] = g.TasksOn(slot)
	}
	g.counts = counts
}

// CountTask adds tasks of the class to all views and groups that count them; a negative number removes them.
func (s *Views) CountTask(c *Class, slot, tasks int32) {
	if g := c.Group; g.IsCounted {
		if g.Placed == nil {
			g.Placed = map[int32]int32{}
		}
		g.Placed[slot] += tasks
		if g.counts != nil {
			g.counts[slot] += tasks
		}
		for _, v := range g.Views { // order-free: each for itself
			s.countInView(v, slot, tasks)
		}
	}
	for _, v := range c.counts {
		s.countInView(v, slot, tasks)
	}
}

// countInView adds tasks to a view. Where the view is by fine label, the other nodes with the same value change, too.
func (s *Views) countInView(v *View, slot, tasks int32) {
	v.Add(s.nodes, slot, tasks)
	if v.fine == "" {
		return
	}
	for _, peer := range s.nodes.Peers(v.fine, slot) {
		if peer != slot {
			s.nodes.Touch(s.nodes.OwnLoad(peer), peer)
		}
	}
}

// Release keeps the counts of a finished group for reuse. The counts of a group with required anti-affinity stay:
// refusals are explained by them.
func (s *Views) Release(g *Group) {
	if g.Left == 0 && g.counts != nil && !g.hasDemand {
		s.spareCounts = append(s.spareCounts, g.counts)
		g.counts = nil
	}
}

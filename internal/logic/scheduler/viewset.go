package scheduler

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
)

// viewSet makes and updates the views of a cycle. Each view and each group counts, at any time, the tasks that are
// reserved in the fleet and those that the cycle placed.
type viewSet struct {
	nodes  *overlay
	tables map[string]*valueTable // by attribute
	// relations count the tasks that relations select; exclusions the tasks that exclude others. Both are by
	// relationKey.
	relations, exclusions map[string]*relationView
	// spareCounts are counts of finished groups, for reuse.
	spareCounts [][]int32
}

func newViewSet(nodes *overlay) viewSet { return viewSet{nodes: nodes} }

// table returns the table of an attribute that is not per node. It is made once for each cycle.
func (s *viewSet) table(attribute string) *valueTable {
	if t, found := s.tables[attribute]; found {
		return t
	}
	classes := s.nodes.fleet.catalog.classes
	t, numbers := &valueTable{of: make([]int32, len(classes))}, map[string]int32{}
	for i := range classes {
		if classes[i].count == 0 {
			continue
		}
		v := classes[i].like.Value(attribute)
		number, found := numbers[v]
		if !found {
			number = int32(len(t.values))
			numbers[v] = number
			t.values = append(t.values, v)
		}
		t.of[i] = number
	}
	if s.tables == nil {
		s.tables = map[string]*valueTable{}
	}
	s.tables[attribute] = t
	return t
}

func (s *viewSet) newView(attribute string) *view {
	if attribute == nodeName {
		return &view{nodes: map[int32]int32{}}
	}
	if s.nodes.fleet.catalog.labels.fine(attribute) != nil {
		return &view{nodes: map[int32]int32{}, fine: attribute}
	}
	t := s.table(attribute)
	return &view{table: t, values: make([]int32, len(t.values))}
}

// groupView returns the view that counts the tasks of a group by an attribute.
func (s *viewSet) groupView(g *group, attribute string) *view {
	s.findReserved(g)
	if v, found := g.views[attribute]; found {
		return v
	}
	v := s.newView(attribute)
	if g.sameDefinition != nil {
		for at, tasks := range g.sameDefinition.counts { // order-free: a sum
			if slices.Contains(g.countedGenerations, at.generation()) {
				v.add(s.nodes, at.slot(), tasks)
			}
		}
	}
	if g.noDefinition != nil {
		for at, tasks := range g.noDefinition.counts { // order-free: a sum
			v.add(s.nodes, at.slot(), tasks)
		}
	}
	for slot, tasks := range g.placed { // order-free: a sum
		v.add(s.nodes, slot, tasks)
	}
	if g.views == nil {
		g.views = map[string]*view{}
	}
	g.views[attribute] = v
	return v
}

// findReserved finds the fleet's reservations that count for the group.
func (s *viewSet) findReserved(g *group) {
	if g.hasReserved {
		return
	}
	g.hasReserved = true
	p := g.classes[0].task
	tasks, generation, definition := tasksOf(p.Task, p.Definition)
	after := generation >= p.Restarted
	if g.sameDefinition = s.nodes.fleet.reservedGroups.of(tasks, definition); g.sameDefinition != nil {
		for _, v := range g.sameDefinition.generations {
			if (v.generation >= p.Restarted) == after {
				g.countedGenerations = append(g.countedGenerations, v.generation)
			}
		}
	}
	if definition.Name != "" {
		unknown, _, _ := tasksOf(p.Task, cluster.Ref{})
		g.noDefinition = s.nodes.fleet.reservedGroups.of(unknown, cluster.Ref{})
	}
}

// makeCounts stores the results of tasksOn by slot.
func (s *viewSet) makeCounts(g *group) {
	if g.counts != nil {
		return
	}
	var counts []int32
	if last := len(s.spareCounts) - 1; last >= 0 {
		counts, s.spareCounts = s.spareCounts[last], s.spareCounts[:last]
		clear(counts)
	} else {
		counts = make([]int32, s.nodes.fleet.slotCount())
	}
	for slot := range g.nodes {
		counts[slot] = g.tasksOn(slot)
	}
	g.counts = counts
}

// countTask adds tasks of the class to all views and groups that count them; a negative number removes them.
func (s *viewSet) countTask(c *taskClass, slot, tasks int32) {
	if g := c.group; g.isCounted {
		if g.placed == nil {
			g.placed = map[int32]int32{}
		}
		g.placed[slot] += tasks
		if g.counts != nil {
			g.counts[slot] += tasks
		}
		for _, v := range g.views { // order-free: each for itself
			s.countInView(v, slot, tasks)
		}
	}
	for _, v := range c.counts {
		s.countInView(v, slot, tasks)
	}
}

// countInView adds tasks to a view. Where the view is by fine label, the other nodes with the same value change, too.
func (s *viewSet) countInView(v *view, slot, tasks int32) {
	v.add(s.nodes, slot, tasks)
	if v.fine == "" {
		return
	}
	for _, peer := range s.nodes.peers(v.fine, slot) {
		if peer != slot {
			s.nodes.touch(s.nodes.ownLoad(peer), peer)
		}
	}
}

// release keeps the counts of a finished group for reuse. The counts of a group with required anti-affinity stay:
// refusals are explained by them.
func (s *viewSet) release(g *group) {
	if g.left == 0 && g.counts != nil && !g.hasDemand {
		s.spareCounts = append(s.spareCounts, g.counts)
		g.counts = nil
	}
}

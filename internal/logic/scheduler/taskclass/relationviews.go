package taskclass

import (
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
)

// relationView counts tasks for relations in a cycle: those with some labels, or those that exclude tasks with some
// labels.
type relationView struct {
	About cluster.Relation
	*View
}

// MakeRelationViews makes the views for the relations of pending tasks and of reservations, before anything is placed.
func (s *Views) MakeRelationViews(classes []*Class) {
	exclusions := map[string]*relationView{}
	for key, g := range s.nodes.Fleet.RelationIndex.Exclusions { // order-free: a copy
		w := &relationView{g.Away, s.newView(g.Away.Attribute)}
		for slot, tasks := range g.At { // order-free: a sum
			w.Add(s.nodes, slot, tasks)
		}
		exclusions[key] = w
	}
	views := map[string]*relationView{}
	for _, c := range classes {
		name := fleet.ClusterOf(c.Task.Task)
		for i := range c.Task.Placement.Relations {
			r := fleet.WholeRelation(c.Task.Placement.Relations[i], name)
			key := fleet.RelationKey(&r)
			w := views[key]
			if w == nil {
				w = &relationView{r, s.newView(r.Attribute)}
				views[key] = w
				s.countReserved(w)
			}
			t := relationTerm{Relation: r, View: w.View, own: fleet.Selects(&r, name, c.Task.Labels)}
			c.Relations = append(c.Relations, t)
			if r.Away && r.Required {
				if exclusions[key] == nil {
					exclusions[key] = &relationView{r, s.newView(r.Attribute)}
				}
				c.counts = append(c.counts, exclusions[key].View)
			}
		}
	}
	s.Relations, s.Exclusions = views, exclusions
	if len(views)+len(exclusions) == 0 {
		return
	}
	for _, c := range classes {
		name := fleet.ClusterOf(c.Task.Task)
		for _, w := range views { // order-free: each view counts by itself
			if fleet.Selects(&w.About, name, c.Task.Labels) {
				c.counts = append(c.counts, w.View)
			}
		}
		for _, w := range exclusions { // order-free: sorted below
			if fleet.Selects(&w.About, name, c.Task.Labels) {
				c.Exclusions = append(c.Exclusions, exclusionTerm{w.View, exclusionText(&w.About)})
			}
		}
		slices.SortFunc(c.Exclusions, func(a, b exclusionTerm) int { return strings.Compare(a.Text, b.Text) })
	}
}

// countReserved adds the fleet's reservations to a view.
func (s *Views) countReserved(w *relationView) {
	for _, k := range s.nodes.Fleet.RelationIndex.LabelGroups { // order-free: a sum
		if fleet.Selects(&w.About, k.Cluster, k.Labels) {
			for slot, tasks := range k.At { // order-free: a sum
				w.Add(s.nodes, slot, tasks)
			}
		}
	}
}

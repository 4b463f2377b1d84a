package scheduler

import (
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// relationView counts tasks for relations in a cycle: those with some labels, or those that exclude tasks with some
// labels.
type relationView struct {
	about cluster.Relation
	*view
}

// makeRelationViews makes the views for the relations of pending tasks and of reservations, before anything is placed.
func (s *viewSet) makeRelationViews(classes []*taskClass) {
	exclusions := map[string]*relationView{}
	for key, g := range s.nodes.fleet.relationIndex.exclusions { // order-free: a copy
		w := &relationView{g.away, s.newView(g.away.Attribute)}
		for slot, tasks := range g.at { // order-free: a sum
			w.add(s.nodes, slot, tasks)
		}
		exclusions[key] = w
	}
	views := map[string]*relationView{}
	for _, c := range classes {
		name := clusterOf(c.task.Task)
		for i := range c.task.Placement.Relations {
			r := wholeRelation(c.task.Placement.Relations[i], name)
			key := relationKey(&r)
			w := views[key]
			if w == nil {
				w = &relationView{r, s.newView(r.Attribute)}
				views[key] = w
				s.countReserved(w)
			}
			t := relationTerm{Relation: r, view: w.view, own: relationSelects(&r, name, c.task.Labels)}
			c.relations = append(c.relations, t)
			if r.Away && r.Required {
				if exclusions[key] == nil {
					exclusions[key] = &relationView{r, s.newView(r.Attribute)}
				}
				c.counts = append(c.counts, exclusions[key].view)
			}
		}
	}
	s.relations, s.exclusions = views, exclusions
	if len(views)+len(exclusions) == 0 {
		return
	}
	for _, c := range classes {
		name := clusterOf(c.task.Task)
		for _, w := range views { // order-free: each view counts by itself
			if relationSelects(&w.about, name, c.task.Labels) {
				c.counts = append(c.counts, w.view)
			}
		}
		for _, w := range exclusions { // order-free: sorted below
			if relationSelects(&w.about, name, c.task.Labels) {
				c.exclusions = append(c.exclusions, exclusionTerm{w.view, exclusionText(&w.about)})
			}
		}
		slices.SortFunc(c.exclusions, func(a, b exclusionTerm) int { return strings.Compare(a.text, b.text) })
	}
}

// countReserved adds the fleet's reservations to a view.
func (s *viewSet) countReserved(w *relationView) {
	for _, k := range s.nodes.fleet.relationIndex.labelGroups { // order-free: a sum
		if relationSelects(&w.about, k.cluster, k.labels) {
			for slot, tasks := range k.at { // order-free: a sum
				w.add(s.nodes, slot, tasks)
			}
		}
	}
}

package taskclass

import (
	"github.com/berthd/berth/internal/cluster"
)

// terms are the preferences and requirements of a task class beside constraints and room.
type terms struct {
	points          []int32 // by node class, of affinities that all its nodes meet alike
	NamedAffinities []cluster.Affinity
	Spreads         []SpreadTerm
	Distincts       []distinctTerm
	Relations       []relationTerm
	Exclusions      []exclusionTerm
	counts          []*View // the views that count its tasks

	// ScansAll: every node is judged, because no tree order holds. IsDynamic: scores or refusals of whole node classes
	// change with each placement. Revives: a node that refuses may become feasible in the same cycle. Joins: it may do
	// so because another task was placed; Joins implies Revives.
	HasPreferences, ScansAll, IsDynamic, Revives, Joins bool
	AffinityScored                                      []int32 // nodes with individual scores by NamedAffinities
}

// Point is the unit of preferences: 1000 points are a weight of 1.
const Point = 1000

type distinctTerm struct {
	cluster.Distinct
	View *View
}

type exclusionTerm struct {
	*View
	Text string
}

// ClassPoints returns the preference points of all nodes of a node class without an individual score.
func (c *Class) ClassPoints(class int32) int64 {
	points := int64(0)
	if c.points != nil {
		points = int64(c.points[class])
	}
	for i := range c.Spreads {
		if t := &c.Spreads[i]; t.View.Table != nil {
			points += t.points(c, class)
		} else {
			points += t.EmptyPoints
		}
	}
	for i := range c.Relations {
		if t := &c.Relations[i]; t.Table != nil {
			points += t.PointsFor(t.Values[t.Table.Of[class]])
		}
	}
	return points
}

// RefusesNodeClass reports whether a term keeps the class from all nodes of a node class.
func (c *Class) RefusesNodeClass(class int32) bool {
	for i := range c.Distincts {
		if t := &c.Distincts[i]; t.View.Table != nil && int(t.View.Values[t.View.Table.Of[class]]) >= t.Most {
			return true
		}
	}
	for i := range c.Spreads {
		if t := &c.Spreads[i]; t.MaxSkew > 0 && t.View.Table != nil &&
			int(t.View.Values[t.View.Table.Of[class]]+1-t.MinTasks()) > t.MaxSkew {
			return true
		}
	}
	for i := range c.Relations {
		if t := &c.Relations[i]; t.Table != nil && !t.Met(t.Values[t.Table.Of[class]]) {
			return true
		}
	}
	for i := range c.Exclusions {
		if t := &c.Exclusions[i]; t.Table != nil && t.Values[t.Table.Of[class]] > 0 {
			return true
		}
	}
	return false
}

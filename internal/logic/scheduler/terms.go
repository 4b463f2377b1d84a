package scheduler

import "github.com/berthd/berth/internal/cluster"

// terms are the wishes and demands of a task class beside constraints and room.
type terms struct {
	points          []int32 // by node class, of affinities that all its nodes meet alike
	namedAffinities []cluster.Affinity
	spreads         []spreadTerm
	distincts       []distinctTerm
	relations       []relationTerm
	exclusions      []exclusionTerm
	counts          []*view // the views that count its tasks

	// scansAll: every node is judged, because no tree order holds. isDynamic: scores or refusals of whole node classes
	// change with each placement. revives: a node that refuses may become feasible in the same cycle. joins: it may do
	// so because another task was placed; joins implies revives.
	hasWishes, scansAll, isDynamic, revives, joins bool
	affinityScored                                 []int32 // nodes with individual scores by namedAffinities
}

// point is the unit of wishes: 1000 points are a weight of 1.
const point = 1000

type distinctTerm struct {
	cluster.Distinct
	view *view
}

type exclusionTerm struct {
	*view
	text string
}

// classPoints returns the wish points of all nodes of a node class without an individual score.
func (c *taskClass) classPoints(class int32) int64 {
	points := int64(0)
	if c.points != nil {
		points = int64(c.points[class])
	}
	for i := range c.spreads {
		if t := &c.spreads[i]; t.view.table != nil {
			points += t.points(c, class)
		} else {
			points += t.emptyPoints
		}
	}
	for i := range c.relations {
		if t := &c.relations[i]; t.table != nil {
			points += t.pointsFor(t.values[t.table.of[class]])
		}
	}
	return points
}

// refusesNodeClass reports whether a term keeps the class from all nodes of a node class.
func (c *taskClass) refusesNodeClass(class int32) bool {
	for i := range c.distincts {
		if t := &c.distincts[i]; t.view.table != nil && int(t.view.values[t.view.table.of[class]]) >= t.Most {
			return true
		}
	}
	for i := range c.spreads {
		if t := &c.spreads[i]; t.MaxSkew > 0 && t.view.table != nil &&
			int(t.view.values[t.view.table.of[class]]+1-t.minTasks()) > t.MaxSkew {
			return true
		}
	}
	for i := range c.relations {
		if t := &c.relations[i]; t.table != nil && !t.met(t.values[t.table.of[class]]) {
			return true
		}
	}
	for i := range c.exclusions {
		if t := &c.exclusions[i]; t.table != nil && t.values[t.table.of[class]] > 0 {
			return true
		}
	}
	return false
}

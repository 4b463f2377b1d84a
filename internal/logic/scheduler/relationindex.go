package scheduler

import (
	"maps"

	"github.com/berthd/berth/internal/cluster"
)

// relationIndex counts a fleet's reservations by what relations select.
type relationIndex struct {
	labelGroups map[string]*labelGroup
	exclusions  map[string]*exclusion
}

// labelGroup is the reservations of one cluster whose owners have equal labels.
type labelGroup struct {
	cluster string
	labels  cluster.Labels
	at      map[int32]int32 // by slot
}

// exclusion is the reservations that exclude the same tasks, by required relations with Away.
type exclusion struct {
	away cluster.Relation // with clusters and attribute filled in
	at   map[int32]int32  // by slot
}

func newRelationIndex() relationIndex {
	return relationIndex{labelGroups: map[string]*labelGroup{}, exclusions: map[string]*exclusion{}}
}

// add adds tasks of a reservation; a negative number removes them.
func (o *relationIndex) add(r *Reservation, slot, tasks int32) {
	if len(r.Labels) > 0 {
		name := clusterOf(r.Task)
		key := string(labelsKey(textKey(nil, name), r.Labels))
		k := o.labelGroups[key]
		if k == nil {
			k = &labelGroup{name, r.Labels, map[int32]int32{}}
			o.labelGroups[key] = k
		}
		if k.at[slot] += tasks; k.at[slot] == 0 {
			delete(k.at, slot)
		}
		if len(k.at) == 0 {
			delete(o.labelGroups, key)
		}
	}
	for i := range r.Away {
		away := wholeRelation(r.Away[i], clusterOf(r.Task))
		key := relationKey(&away)
		g := o.exclusions[key]
		if g == nil {
			g = &exclusion{away, map[int32]int32{}}
			o.exclusions[key] = g
		}
		if g.at[slot] += tasks; g.at[slot] == 0 {
			delete(g.at, slot)
		}
		if len(g.at) == 0 {
			delete(o.exclusions, key)
		}
	}
}

func (o *relationIndex) clone() relationIndex {
	c := newRelationIndex()
	for key, k := range o.labelGroups { // order-free: a copy
		c.labelGroups[key] = &labelGroup{k.cluster, k.labels, maps.Clone(k.at)}
	}
	for key, g := range o.exclusions { // order-free: a copy
		c.exclusions[key] = &exclusion{g.away, maps.Clone(g.at)}
	}
	return c
}

package fleet

import (
	"maps"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/encode"
)

// RelationIndex counts a fleet's reservations by what relations select.
type RelationIndex struct {
	LabelGroups map[string]*labelGroup
	Exclusions  map[string]*exclusion
}

// labelGroup is the reservations of one cluster whose owners have equal labels.
type labelGroup struct {
	Cluster string
	Labels  cluster.Labels
	At      map[int32]int32 // by slot
}

// exclusion is the reservations that exclude the same tasks, by required relations with Away.
type exclusion struct {
	Away cluster.Relation // with clusters and attribute filled in
	At   map[int32]int32  // by slot
}

func newRelationIndex() RelationIndex {
	return RelationIndex{LabelGroups: map[string]*labelGroup{}, Exclusions: map[string]*exclusion{}}
}

// add adds tasks of a reservation; a negative number removes them.
func (o *RelationIndex) add(r *Reservation, slot, tasks int32) {
	if len(r.Labels) > 0 {
		name := ClusterOf(r.Task)
		key := string(encode.Labels(encode.Text(nil, name), r.Labels))
		k := o.LabelGroups[key]
		if k == nil {
			k = &labelGroup{name, r.Labels, map[int32]int32{}}
			o.LabelGroups[key] = k
		}
		if k.At[slot] += tasks; k.At[slot] == 0 {
			delete(k.At, slot)
		}
		if len(k.At) == 0 {
			delete(o.LabelGroups, key)
		}
	}
	for i := range r.Away {
		away := WholeRelation(r.Away[i], ClusterOf(r.Task))
		key := RelationKey(&away)
		g := o.Exclusions[key]
		if g == nil {
			g = &exclusion{away, map[int32]int32{}}
			o.Exclusions[key] = g
		}
		if g.At[slot] += tasks; g.At[slot] == 0 {
			delete(g.At, slot)
		}
		if len(g.At) == 0 {
			delete(o.Exclusions, key)
		}
	}
}

func (o *RelationIndex) clone() RelationIndex {
	c := newRelationIndex()
	for key, k := range o.LabelGroups { // order-free: a copy
		c.LabelGroups[key] = &labelGroup{k.Cluster, k.Labels, maps.Clone(k.At)}
	}
	for key, g := range o.Exclusions { // order-free: a copy
		c.Exclusions[key] = &exclusion{g.Away, maps.Clone(g.At)}
	}
	return c
}

package fleet

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/encode"
)

// WholeRelation fills in the defaults of a relation of a task of the cluster.
func WholeRelation(r cluster.Relation, own string) cluster.Relation {
	if r.Attribute == "" {
		r.Attribute = NodeName
	}
	if len(r.Clusters) == 0 {
		r.Clusters = []string{own}
	}
	if r.Weight == 0 {
		r.Weight = cluster.DefaultWeight
	}
	return r
}

// Selects reports whether a relation, with defaults filled in, selects tasks of the cluster and labels.
func Selects(r *cluster.Relation, name string, labels cluster.Labels) bool {
	if len(labels) == 0 || !slices.Contains(r.Clusters, name) {
		return false
	}
	for key, value := range r.Labels { // order-free: all of them
		if have, found := labels[key]; !found || have != value {
			return false
		}
	}
	return true
}

// RelationKey identifies the tasks that a relation selects and the attribute of nearness, but not its weight or sign.
func RelationKey(r *cluster.Relation) string {
	b := encode.Text(nil, r.Attribute)
	b = encode.Labels(b, r.Labels)
	for _, name := range slices.Sorted(slices.Values(r.Clusters)) {
		b = encode.Text(b, name)
	}
	return string(b)
}

// AwayOf returns the relations of a placement that exclude other tasks: they hold both ways.
func AwayOf(p *cluster.Placement) (away []cluster.Relation) {
	for _, r := range p.Relations {
		if r.Away && r.Required {
			away = append(away, r)
		}
	}
	return away
}

// Concerns reports whether a relation of the task own selects the task other, whose owner has the labels.
func Concerns(r cluster.Relation, own, other cluster.TaskID, labels cluster.Labels) bool {
	r = WholeRelation(r, ClusterOf(own))
	return Selects(&r, ClusterOf(other), labels)
}

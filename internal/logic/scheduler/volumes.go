package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// attributeVolume is the attribute of the constraints that bound adds: Value is the volume's key, Values the nodes that have it. No user can name it.
const attributeVolume = "volume"

// bound returns the pending tasks with a constraint for each volume that keeps them with it and that nodes have: whoever finds out about
// constraints then knows of volumes. A node of the fleet that is down has its volumes all the same. What nobody has yet binds nobody, and
// a daemon is on all its nodes, with a volume on each.
func (f *Fleet) bound(pending []cluster.Pending) []cluster.Pending {
	own := false
	for i := range pending {
		var add []cluster.Constraint
		if pending[i].Daemon {
			continue
		}
		for _, key := range pending[i].Volumes {
			if nodes := f.volumes[key]; len(nodes) > 0 {
				add = append(add, cluster.Constraint{Attribute: attributeVolume, Op: cluster.OpExists, Value: key, Values: f.namesOf(nodes)})
			}
		}
		if len(add) == 0 {
			continue
		}
		if !own {
			pending, own = slices.Clone(pending), true
		}
		pending[i].Placement.Constraints = slices.Concat(pending[i].Placement.Constraints, add)
	}
	return pending
}

// namesOf returns the names of nodes in order.
func (f *Fleet) namesOf(slots map[int32]struct{}) []string {
	names := make([]string, 0, len(slots))
	for slot := range slots { // order-free: sorted next
		names = append(names, f.slots[slot].node.Name)
	}
	slices.Sort(names)
	return names
}

// constraintCode returns the reason of a node that does not meet a constraint.
func constraintCode(c *cluster.Constraint) cluster.ReasonCode {
	if c.Attribute == attributeVolume {
		return cluster.ReasonVolume
	}
	return cluster.ReasonConstraint
}

// mostHolders bounds how many nodes with a volume are named.
const mostHolders = 3

// volumeText says where a volume is.
func volumeText(c cluster.Constraint) string {
	_, name, _ := strings.Cut(c.Value, "/")
	nodes, more := c.Values, ""
	if len(nodes) > mostHolders {
		more = fmt.Sprintf(" and %d more", len(nodes)-mostHolders)
		nodes = nodes[:mostHolders]
	}
	return fmt.Sprintf("the data of its volume %s is on %s%s", name, strings.Join(nodes, ", "), more)
}

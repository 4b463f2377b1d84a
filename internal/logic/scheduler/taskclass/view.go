package taskclass

import (
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
)

// valueTable holds the values of an attribute on the nodes of a fleet.
type valueTable struct {
	Of     []int32 // by node class, the number of its value
	values []string
}

// View counts tasks by the value that their nodes have for an attribute. For per-node attributes it counts by node.
type View struct {
	Table     *valueTable     // nil: counted by node
	Values    []int32         // by number of the value
	Nodes     map[int32]int32 // by slot, above 0; by fine label, with the count of all nodes with its value
	fine      string          // the attribute, if it is a fine label
	total     int
	Changes   int // number of changes
	Decreases int // number of decreases
}

// Add adds tasks on a node; a negative number removes them. Nodes that are not set do not count.
func (v *View) Add(o *fleet.Overlay, slot, tasks int32) {
	class := o.Fleet.ClassOf(slot)
	if class < 0 || tasks == 0 {
		return
	}
	v.total += int(tasks)
	v.Changes++
	if tasks < 0 {
		v.Decreases++
	}
	switch {
	case v.Table != nil:
		v.Values[v.Table.Of[class]] += tasks
	case v.fine == "":
		v.count(slot, tasks)
	default:
		for _, peer := range o.Peers(v.fine, slot) {
			v.count(peer, tasks)
		}
	}
}

func (v *View) count(slot, tasks int32) {
	if v.Nodes[slot] += tasks; v.Nodes[slot] == 0 {
		delete(v.Nodes, slot)
	}
}

// At returns the number of tasks that are near the node by the view's attribute.
func (v *View) At(o *fleet.Overlay, slot int32) int32 {
	if v.Table == nil {
		return v.Nodes[slot]
	}
	return v.Values[v.Table.Of[o.Fleet.ClassOf(slot)]]
}

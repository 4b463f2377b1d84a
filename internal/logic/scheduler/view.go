package scheduler

// valueTable holds the values of an attribute on the nodes of a fleet.
type valueTable struct {
	of     []int32 // by node class, the number of its value
	values []string
}

// view counts tasks by the value that their nodes have for an attribute. For per-node attributes it counts by node.
type view struct {
	table     *valueTable     // nil: counted by node
	values    []int32         // by number of the value
	nodes     map[int32]int32 // by slot, above 0; by fine label, with the count of all nodes with its value
	fine      string          // the attribute, if it is a fine label
	total     int
	changes   int // number of changes
	decreases int // number of decreases
}

// add adds tasks on a node; a negative number removes them. Nodes that are not set do not count.
func (v *view) add(o *overlay, slot, tasks int32) {
	class := o.fleet.classOf(slot)
	if class < 0 || tasks == 0 {
		return
	}
	v.total += int(tasks)
	v.changes++
	if tasks < 0 {
		v.decreases++
	}
	switch {
	case v.table != nil:
		v.values[v.table.of[class]] += tasks
	case v.fine == "":
		v.count(slot, tasks)
	default:
		for _, peer := range o.peers(v.fine, slot) {
			v.count(peer, tasks)
		}
	}
}

func (v *view) count(slot, tasks int32) {
	if v.nodes[slot] += tasks; v.nodes[slot] == 0 {
		delete(v.nodes, slot)
	}
}

// at returns the number of tasks that are near the node by the view's attribute.
func (v *view) at(o *overlay, slot int32) int32 {
	if v.table == nil {
		return v.nodes[slot]
	}
	return v.values[v.table.of[o.fleet.classOf(slot)]]
}

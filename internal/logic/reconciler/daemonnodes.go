package reconciler

import (
	"iter"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// DaemonNode is a node of the owner's domain as a daemon looks at it.
type DaemonNode struct {
	*scheduler.Node
	// Gone says that the node is known never to come back, Silent that it is not heard.
	Gone, Silent bool
	// Alone says that the node is to be emptied and that nothing but tasks of daemons is left there.
	Alone bool
}

// SetNodes sets Nodes and Alone of a daemon's input from the nodes of its domain, which come ordered by name. Tasks,
// Spec and ClusterConstraints are set before. A daemon belongs on each node that its constraints and its cluster's
// allow. On a node that is gone, silent or emptied it begins nothing; on the latter two it keeps what stands there.
func (in *ServiceInput) SetNodes(nodes iter.Seq[DaemonNode]) {
	held := map[string]bool{}
	for i := range in.Tasks {
		switch t := &in.Tasks[i]; {
		case t.Desired != nil:
			held[t.Desired.Node] = true
		case t.Observed != nil:
			held[t.Observed.Node] = true
		}
	}
	ours := cluster.Placement{Constraints: in.ClusterConstraints, Tolerations: in.Spec.Placement.Tolerations}
	in.Nodes, in.Alone = []string{}, map[string]bool{}
	for n := range nodes {
		if n.Alone {
			in.Alone[n.Name] = true
		}
		if n.Gone || (n.Silent || n.Alone) && !held[n.Name] || !scheduler.Allows(&ours, n.Node, held[n.Name]) ||
			!scheduler.Allows(&in.Spec.Placement, n.Node, held[n.Name]) {
			continue
		}
		in.Nodes = append(in.Nodes, n.Name)
	}
}

// RecoveryOf returns what decisions have to know of an earlier recovery: the incarnation of the store, and what was
// decided, nil where nothing was.
func RecoveryOf(incarnation uint64, decided *cluster.Recovery) Recovery {
	r := Recovery{Incarnation: incarnation}
	if decided != nil && decided.State == cluster.RecoveryStop {
		r.StopBefore = decided.Decided
	}
	return r
}

package reconciler

import (
	"iter"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// DaemonNode is a node of the owner's domain with the state that matters to a daemon.
type DaemonNode struct {
	*scheduler.Node
	// Gone says that the node will never come back, Silent that it does not report.
	Gone, Silent bool
	// Alone says that the node is drained and that only tasks of daemons are left on it.
	Alone bool
}

// SetNodes sets Nodes, Alone and Staying of a daemon's input from the nodes of its domain, which come ordered by name.
// Tasks, Spec, Cluster and Now must be set before. A daemon belongs on each node that its constraints and its cluster's
// allow. It begins nothing on a gone, silent or drained node. On a silent or drained node its existing tasks stay. Its
// task stays for a while on a node with a taint that evicts, if a toleration says so.
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
	ours := cluster.Placement{Constraints: constraintsOf(in.Cluster), Tolerations: in.Spec.Placement.Tolerations}
	in.Nodes, in.Alone, in.Staying = []string{}, map[string]bool{}, map[string]time.Time{}
	for n := range nodes {
		if n.Alone {
			in.Alone[n.Name] = true
		}
		if n.Gone || (n.Silent || n.Alone) && !held[n.Name] || !scheduler.Allows(&ours, n.Node, held[n.Name]) ||
			!scheduler.Allows(&in.Spec.Placement, n.Node, held[n.Name]) {
			if until, ok := in.staysUntil(&ours, n.Node); ok && held[n.Name] && !n.Gone {
				in.Staying[n.Name] = until
			}
			continue
		}
		in.Nodes = append(in.Nodes, n.Name)
	}
}

// staysUntil returns until when a task may stay on a node that has a taint which evicts it, and meets all else.
func (in *ServiceInput) staysUntil(common *cluster.Placement, n *scheduler.Node) (until time.Time, ok bool) {
	if _, until, ok = in.Spec.Placement.Evicts(n.Taints); !ok || !until.After(in.Now) {
		return until, false
	}
	for _, p := range []*cluster.Placement{common, &in.Spec.Placement} {
		if _, unmet := scheduler.Unmet(p, n); unmet {
			return until, false
		}
	}
	return until, true
}

// RecoveryOf returns the facts of an earlier recovery for decisions: the incarnation of the store and the operator's
// decision, which is nil if there was none.
func RecoveryOf(incarnation uint64, decided *cluster.Recovery) Recovery {
	r := Recovery{Incarnation: incarnation}
	if decided != nil && decided.State == cluster.RecoveryStop {
		r.StopBefore = decided.Decided
	}
	return r
}

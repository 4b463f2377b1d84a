package reconciler

import (
	"fmt"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// PlacedTask is a placed task with the rules that decide whether it may stay where it is.
type PlacedTask struct {
	Placement *cluster.Placement
	// Common are the constraints of the task's cluster.
	Common []cluster.Constraint
	// Job says that the task belongs to a job. OnViolation is the setting of the task's service.
	Job         bool
	OnViolation cluster.OnViolation
}

// FindViolation returns why a task should no longer run on a node in its present state: a taint that evicts the task,
// or a constraint that the node does not meet. It returns nil if the task fits. With leaves the task must leave the
// node; else the violation is only shown.
func FindViolation(t PlacedTask, n *scheduler.Node) (why *Leave, leaves bool) {
	if taint, until, ok := t.Placement.Evicts(n.Taints); ok {
		return &Leave{
			Reason: cluster.ReasonTaint, Since: taint.Since, From: until, Now: t.Job,
			Message: fmt.Sprintf("node %s has the taint %s", n.Name, taint),
		}, true
	}
	lacks, ok := scheduler.Unmet(t.Placement, n)
	if !ok && len(t.Common) > 0 {
		lacks, ok = scheduler.Unmet(&cluster.Placement{Constraints: t.Common}, n)
	}
	if !ok {
		return nil, false
	}
	why = &Leave{
		Reason:  cluster.ReasonConstraint,
		Message: fmt.Sprintf("node %s no longer meets %s", n.Name, lacks.Detail),
	}
	if lacks.Code == cluster.ReasonPool {
		why.Message = fmt.Sprintf("node %s is no longer in pool %s", n.Name, lacks.Detail)
	}
	return why, !t.Job && t.OnViolation == cluster.ViolationMove
}

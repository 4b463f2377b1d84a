package reconciler

import (
	"fmt"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// Standing is a task where it stands, as far as it matters whether it may stand there.
type Standing struct {
	Placement *cluster.Placement
	// Common are the constraints of its cluster.
	Common []cluster.Constraint
	// Job says that it is a job's, and OnViolation what its service says of violations.
	Job         bool
	OnViolation cluster.OnViolation
}

// Misfit says why a task should not stand on a node any more, as that is now: a taint that evicts it, or a demand that
// is not met; nil where it fits. Leaves reports whether it is to leave for that: else it is only shown.
func Misfit(t Standing, n *scheduler.Node) (why *Leave, leaves bool) {
	if taint, until, ok := t.Placement.Evicts(n.Taints); ok {
		return &Leave{
			Reason: cluster.ReasonTaint, Since: taint.Since, From: until, Now: t.Job,
			Message: fmt.Sprintf("node %s has the taint %s, which it does not tolerate", n.Name, taint),
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
		Message: fmt.Sprintf("node %s does not meet %s any more", n.Name, lacks.Detail),
	}
	if lacks.Code == cluster.ReasonPool {
		why.Message = fmt.Sprintf("node %s is not in pool %s any more", n.Name, lacks.Detail)
	}
	return why, !t.Job && t.OnViolation == cluster.ViolationMove
}

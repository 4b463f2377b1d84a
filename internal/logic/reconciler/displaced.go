package reconciler

import (
	"fmt"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
)

// Of all attempts of a task on one node, one has its desired record in the store and one its status: the keys name the
// node and the task. They are of two attempts only where the store went back, or somebody deleted records: the node
// runs an attempt that the store does not know, and the store wants another there. The node's word is the newer one. So
// the attempt that the store wants is given up; then there is a key for the record that adopts or stops the one that
// runs.

// displaced returns the attempt whose status stands where that of t would, if the store has no desired record of it;
// else nil.
func (s *slot) displaced(t *Task) *Task {
	if t.Desired == nil || t.Observed != nil || !t.asked() {
		return nil
	}
	for _, other := range s.attempts {
		if other.Desired == nil && other.Observed != nil && !other.Observed.Gone && other.node() == t.node() {
			return other
		}
	}
	return nil
}

// displacedBy is the loss of an attempt that another displaced.
func displacedBy(other *Task) *lifecycle.Loss {
	return &lifecycle.Loss{Reason: cluster.ReasonRecovery, Message: fmt.Sprintf(
		"node %s has attempt %d of the task, which the store does not know, in its place", other.node(),
		other.number())}
}

// crowded reports whether the desired record of another attempt stands where that of t would.
func (s *slot) crowded(t *Task) bool {
	for _, other := range s.attempts {
		if other != t && other.Desired != nil && other.node() == t.node() {
			return true
		}
	}
	return false
}

package reconciler

import (
	"fmt"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
)

// The store keys of a desired record and of a status name the node and the task. All attempts of a task on one node
// share these two keys. The keys hold different attempts only if the store went back or a foreign writer deleted
// records: the node runs an attempt that the store does not know, and the store wants another one there. The node's
// report is newer. So the wanted attempt is given up, and its key is free for a record that adopts or stops the running
// attempt.

// displaced returns the attempt whose status occupies the key of t's status, if the store has no desired record of that
// attempt; else nil.
func (s *slot) displaced(t *Task) *Task {
	if t.Desired == nil || t.Observed != nil || !t.nodeReported() {
		return nil
	}
	for _, other := range s.attempts {
		if other.Desired == nil && other.Observed != nil && !other.Observed.Gone && other.node() == t.node() {
			return other
		}
	}
	return nil
}

// displacedBy returns the loss of an attempt that another attempt displaced.
func displacedBy(other *Task) *lifecycle.Loss {
	return &lifecycle.Loss{Reason: cluster.ReasonRecovery, Message: fmt.Sprintf(
		"replaced on node %s by attempt %d, which the store does not know", other.node(),
		other.number())}
}

// keyTaken reports whether the desired record of another attempt occupies the key of t's desired record.
func (s *slot) keyTaken(t *Task) bool {
	for _, other := range s.attempts {
		if other != t && other.Desired != nil && other.node() == t.node() {
			return true
		}
	}
	return false
}

package reconciler

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/logic/watcher"
)

func (t *Task) id() cluster.TaskID {
	switch {
	case t.Desired != nil:
		return t.Desired.Task
	case t.Outcome != nil:
		return t.Outcome.Task
	case t.Observed != nil:
		return t.Observed.Task
	}
	return ""
}

func (t *Task) number() int {
	switch {
	case t.Desired != nil:
		return t.Desired.Attempt
	case t.Outcome != nil:
		return t.Outcome.Attempt
	case t.Observed != nil:
		return t.Observed.Attempt
	}
	return 0
}

func (t *Task) uuid() string {
	switch {
	case t.Desired != nil:
		return t.Desired.UUID
	case t.Outcome != nil && t.Outcome.UUID != "": // unknown if the attempt's record was lost
		return t.Outcome.UUID
	case t.Observed != nil:
		return t.Observed.UUID
	}
	return ""
}

func (t *Task) node() string {
	switch {
	case t.Desired != nil:
		return t.Desired.Node
	case t.Observed != nil:
		return t.Observed.Node
	case t.Outcome != nil:
		return t.Outcome.Node
	}
	return ""
}

// hasRecords reports whether a record other than the outcome exists. Such a record keeps later attempts off its node
// (P3.6).
func (t *Task) hasRecords() bool { return t.Desired != nil || t.Observed != nil }

// live reports whether the attempt has no outcome yet.
func (t *Task) live() bool { return t.Outcome == nil && t.hasRecords() }

// stopped reports whether the attempt has a stop.
func (t *Task) stopped() bool { return t.Desired != nil && t.Desired.Stop != nil }

// healthy reports whether the attempt is known to be healthy and is to stay. An attempt on a node that fell silent and
// returned counts too: "any live healthy attempt" (P5.4).
func (t *Task) healthy() bool {
	return t.Absence == watcher.Present && !t.stopped() && t.Observed.Healthy() && !t.Observed.Gone
}

// slot is a task with its attempts, oldest first.
type slot struct {
	id       cluster.TaskID
	parts    cluster.TaskParts
	attempts []*Task
	// retriedAt, unless zero, says that failures of attempts that were placed by then do not count: the user had the
	// job's task tried again.
	retriedAt time.Time
	// forced says that the user had this task tried again by itself, so it begins although its step has failed.
	forced bool
	// idempotent says that a job's task may run more than once.
	idempotent bool
	// assignedNode is the node of a daemon's task that has no attempts yet.
	assignedNode string
	// version is the definition of a task of an earlier generation that has no attempts yet.
	version cluster.Ref
}

// slots groups attempts by task. The result is ordered by generation, step and index, and does not
// depend on the order of the input.
func slots(tasks []Task) []*slot {
	byID := make(map[cluster.TaskID]*slot)
	var all []*slot
	for i := range tasks {
		t := &tasks[i]
		id := t.id()
		if id == "" {
			continue
		}
		s := byID[id]
		if s == nil {
			s = newSlot(id)
			byID[id] = s
			all = append(all, s)
		}
		s.attempts = append(s.attempts, t)
	}
	for _, s := range all {
		slices.SortFunc(s.attempts, func(a, b *Task) int {
			return cmp.Or(cmp.Compare(a.number(), b.number()), strings.Compare(a.uuid(), b.uuid()),
				strings.Compare(a.node(), b.node()))
		})
	}
	slices.SortFunc(all, compareSlots)
	return all
}

func newSlot(id cluster.TaskID) *slot {
	parts, _ := id.Parts()
	return &slot{id: id, parts: parts}
}

func compareSlots(a, b *slot) int {
	return cmp.Or(cmp.Compare(a.parts.Generation, b.parts.Generation), strings.Compare(a.parts.Step, b.parts.Step),
		cmp.Compare(a.parts.Index, b.parts.Index), cmp.Compare(a.id, b.id))
}

// live reports whether an attempt has no outcome yet. No other attempt may be placed then (P3.7).
func (s *slot) live() bool { return slices.ContainsFunc(s.attempts, (*Task).live) }

func (s *slot) hasRecords() bool { return slices.ContainsFunc(s.attempts, (*Task).hasRecords) }

func (s *slot) healthy() bool { return slices.ContainsFunc(s.attempts, (*Task).healthy) }

// newest returns the attempt with the highest number, or nil.
func (s *slot) newest() *Task {
	if len(s.attempts) == 0 {
		return nil
	}
	return s.attempts[len(s.attempts)-1]
}

// nextNumber returns the number of the next attempt.
func (s *slot) nextNumber() int {
	if t := s.newest(); t != nil {
		return t.number() + 1
	}
	return 1
}

// freeLosses counts the attempts that were lost, rejected or interrupted and do not use a retry.
func (s *slot) freeLosses() int {
	return s.countOutcomes(func(o *cluster.Outcome) bool { return o.Free && o.State != cluster.StateCancelled })
}

// chargedFailures counts the attempts that ended badly and use a retry of a job.
func (s *slot) chargedFailures() int {
	return s.countOutcomes(func(o *cluster.Outcome) bool {
		return !o.Free && o.State != cluster.StateSucceeded && !isMissingProgram(o)
	})
}

// countOutcomes counts the outcomes that the user's request of further attempts did not settle.
func (s *slot) countOutcomes(counts func(*cluster.Outcome) bool) int {
	n := 0
	for _, t := range s.attempts {
		if t.Outcome != nil && !s.settled(t.Outcome) && counts(t.Outcome) {
			n++
		}
	}
	return n
}

// rejectingNodes returns the ordered nodes that could not take the job's task. An attempt that its start barrier
// refused says nothing about its node.
func (s *slot) rejectingNodes() (nodes []string) {
	for _, t := range s.attempts {
		o := t.Outcome
		if o != nil && o.State == cluster.StateRejected && o.Reason != cluster.ReasonBarrier && !s.settled(o) {
			nodes = append(nodes, o.Node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// settled reports whether the attempt is from before the user had the task tried again. Times of nodes do not count: a
// clock that is behind would leave later failures uncounted.
func (s *slot) settled(o *cluster.Outcome) bool {
	return !s.retriedAt.IsZero() && !placedAt(o).After(s.retriedAt)
}

// placedAt returns when the leader placed an attempt that has ended, or gave it up if there was no place.
func placedAt(o *cluster.Outcome) time.Time {
	if o.Placed.IsZero() {
		return o.Ended
	}
	return o.Placed
}

func (s *slot) succeeded() bool {
	return slices.ContainsFunc(s.attempts, func(t *Task) bool {
		return t.Outcome != nil && t.Outcome.State == cluster.StateSucceeded
	})
}

// retired reports whether the task ended because its owner no longer wanted it.
func (s *slot) retired() bool {
	t := s.newest()
	if t == nil || t.Outcome == nil || t.Outcome.State != cluster.StateCancelled {
		return false
	}
	switch t.Outcome.Reason {
	case cluster.ReasonRollout, cluster.ReasonScaleDown, cluster.ReasonUnmatched, cluster.ReasonDeleted,
		cluster.ReasonCancelled:
		return true
	default:
		return false
	}
}

// endsForGood reports whether the newest attempt is live and has a stop, and no attempt elsewhere replaces it.
func (s *slot) endsForGood() bool {
	t := s.newest()
	return t != nil && t.live() && t.stopped() && !leavesNode(t.Desired.Stop.Reason)
}

// hasStop reports whether the newest attempt is live and has a stop.
func (s *slot) hasStop() bool {
	t := s.newest()
	return t != nil && t.live() && t.stopped()
}

// nodesWithRecords returns the ordered nodes on which a record of an attempt exists (P3.6).
func (s *slot) nodesWithRecords() []string {
	var nodes []string
	for _, t := range s.attempts {
		if t.hasRecords() {
			nodes = append(nodes, t.node())
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// nextAttemptAt returns the time from which the next attempt may be placed. The delay grows with each consecutive
// failure. Lost attempts, cancelled attempts and those that ran for SteadyTime are not failures.
func (s *slot) nextAttemptAt(delay backoff) time.Time {
	t := s.newest()
	if t == nil || t.Outcome == nil || !isFailure(t.Outcome) || s.settled(t.Outcome) {
		return time.Time{}
	}
	row := 0
	for _, t := range slices.Backward(s.attempts) {
		o := t.Outcome
		if o == nil || o.State == cluster.StateLost {
			continue
		}
		if !isFailure(o) || s.settled(o) {
			break
		}
		row++
	}
	return t.Outcome.Ended.Add(lifecycle.Backoff(delay.first, delay.limit, row-1))
}

func isFailure(o *cluster.Outcome) bool {
	switch o.State {
	case cluster.StateFailed, cluster.StateRejected, cluster.StateSucceeded:
		return o.Begun.IsZero() || o.Ended.Sub(o.Begun) < SteadyTime
	default:
		return false
	}
}

// waitingSince returns the time since which the task waits. A task whose last attempt moved keeps the time at which it
// was to leave its node. Otherwise attempts that have yet to leave would rank before it and be stopped for the same
// place. A task without attempts waits since its owner requested it.
func (s *slot) waitingSince(requested time.Time) time.Time {
	if t := s.newest(); t != nil && t.Outcome != nil {
		began := t.Outcome.Ended
		switch {
		case !moved(t.Outcome):
		case t.Drain != nil && t.Drain.Since.Before(began):
			began = t.Drain.Since
		case t.Drain == nil && t.Leave != nil && !t.Leave.Since.IsZero() && t.Leave.Since.Before(began):
			began = t.Leave.Since
		}
		return began
	}
	return requested
}

// unreachable reports whether the attempt's node cannot be asked anything now.
func (t *Task) unreachable() bool { return t.Absence >= watcher.Silent }

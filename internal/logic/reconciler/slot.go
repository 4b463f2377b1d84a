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

// id returns the id of the task that the attempt is of.
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

// number returns the number of the attempt.
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
	case t.Outcome != nil && t.Outcome.UUID != "": // of one whose record was lost it is not known
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

// stands reports whether a record other than the outcome exists: it keeps later attempts off its node (P3.6).
func (t *Task) stands() bool { return t.Desired != nil || t.Observed != nil }

// live reports whether the attempt has no outcome yet.
func (t *Task) live() bool { return t.Outcome == nil && t.stands() }

// stopped reports whether the attempt was told to stop.
func (t *Task) stopped() bool { return t.Desired != nil && t.Desired.Stop != nil }

// healthy reports whether the attempt is known to be well and is to stay. The attempt of a node that was
// silent for too long and returned counts too: "any live healthy attempt" (P5.4).
func (t *Task) healthy() bool {
	return t.Absence == watcher.Present && !t.stopped() && t.Observed.Healthy() && !t.Observed.Gone
}

// slot is a task with its attempts, oldest first.
type slot struct {
	id       cluster.TaskID
	parts    cluster.TaskParts
	attempts []*Task
	// at is the node that a daemon's task without attempts is for.
	at string
	// runs is what a task of an earlier generation without attempts is to run.
	runs cluster.Ref
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

// live reports whether an attempt has no outcome yet: then no other may be placed (P3.7).
func (s *slot) live() bool { return slices.ContainsFunc(s.attempts, (*Task).live) }

// stands reports whether a record of any attempt stands on a node.
func (s *slot) stands() bool { return slices.ContainsFunc(s.attempts, (*Task).stands) }

func (s *slot) healthy() bool { return slices.ContainsFunc(s.attempts, (*Task).healthy) }

// newest returns the attempt with the highest number, or nil.
func (s *slot) newest() *Task {
	if len(s.attempts) == 0 {
		return nil
	}
	return s.attempts[len(s.attempts)-1]
}

// next returns the number of the attempt to come.
func (s *slot) next() int {
	if t := s.newest(); t != nil {
		return t.number() + 1
	}
	return 1
}

// freed returns how many attempts were lost or rejected free of charge.
func (s *slot) freed() int {
	n := 0
	for _, t := range s.attempts {
		if o := t.Outcome; o != nil && o.Free && o.State != cluster.StateCancelled {
			n++
		}
	}
	return n
}

// charged returns how many attempts ended badly and count as tries of a job.
func (s *slot) charged() int {
	n := 0
	for _, t := range s.attempts {
		if o := t.Outcome; o != nil && !o.Free && o.State != cluster.StateSucceeded {
			n++
		}
	}
	return n
}

func (s *slot) succeeded() bool {
	return slices.ContainsFunc(s.attempts, func(t *Task) bool {
		return t.Outcome != nil && t.Outcome.State == cluster.StateSucceeded
	})
}

// retired reports whether the task ended because its owner did not want it any more.
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

// leaving reports whether the newest attempt lives and was told to stop for good, not to run elsewhere next.
func (s *slot) leaving() bool {
	t := s.newest()
	return t != nil && t.live() && t.stopped() && !leavesNode(t.Desired.Stop.Reason)
}

// told reports whether the newest attempt lives and was told to stop.
func (s *slot) told() bool {
	t := s.newest()
	return t != nil && t.live() && t.stopped()
}

// avoid returns the nodes where a record of an attempt still stands, ordered (P3.6).
func (s *slot) avoid() []string {
	var nodes []string
	for _, t := range s.attempts {
		if t.stands() {
			nodes = append(nodes, t.node())
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// ready returns when the next attempt may be placed: after a delay that grows with each
// failure in a row. Lost attempts, cancelled ones and those that ran for SteadyTime are not failures.
func (s *slot) ready(delay backoff) time.Time {
	t := s.newest()
	if t == nil || t.Outcome == nil || !failure(t.Outcome) {
		return time.Time{}
	}
	row := 0
	for _, t := range slices.Backward(s.attempts) {
		o := t.Outcome
		if o == nil || o.State == cluster.StateLost {
			continue
		}
		if !failure(o) {
			break
		}
		row++
	}
	return t.Outcome.Ended.Add(lifecycle.Backoff(delay.first, delay.limit, row-1))
}

func failure(o *cluster.Outcome) bool {
	switch o.State {
	case cluster.StateFailed, cluster.StateRejected, cluster.StateSucceeded:
		return o.Begun.IsZero() || o.Ended.Sub(o.Begun) < SteadyTime
	default:
		return false
	}
}

// since returns when the task began to wait. One whose last attempt left its node keeps the turn that it had when there
// was a place for it: else those that are still to leave would be asked for before it, and be let go for the same
// place.
func (s *slot) since(life cluster.Lifespan) time.Time {
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
	if life.Updated.IsZero() {
		return life.Created
	}
	return life.Updated
}

// away reports whether nothing can be asked of the attempt's node now.
func (t *Task) away() bool { return t.Absence >= watcher.Silent }

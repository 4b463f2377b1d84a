package reconciler

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
)

// Leave says why an attempt is to leave a node that is itself well: the node is short of memory, it has a taint that
// evicts, it does not meet what the attempt's owner demands, the attempt's place is given to another task, or it is
// better placed elsewhere.
type Leave struct {
	// Reason is ReasonPressure, ReasonPreempted, ReasonTaint, ReasonConstraint, ReasonReserved or ReasonRebalance.
	Reason cluster.ReasonCode
	// Message says the same to people, as a clause that can go on: "node n1 is short of memory (96% is used)".
	Message string
	// Since is when the reason came up: among equals, what waits longer to leave is placed first.
	Since time.Time
	// From, unless zero, is until when the attempt may stay all the same.
	From time.Time
	// To, unless empty, is the only node that the next attempt is for.
	To string
	// Now says that the attempt ends without a place elsewhere being known: that of a service as its budget allows, a
	// job's at once. A job's attempt leaves for no other reason.
	Now bool
	// For and ForAttempt, unless empty, name the attempt that takes the place.
	For        cluster.TaskID
	ForAttempt int
}

// stop returns the stop of an attempt that leaves.
func (l *Leave) stop(class cluster.StopClass) cluster.Stop {
	return cluster.Stop{Class: class, Reason: l.Reason, Message: l.Message, For: l.For, ForAttempt: l.ForAttempt}
}

// PressedLeave is the reason of an attempt that its agent suggests to move, as the node is short of memory.
func PressedLeave(node string, p *cluster.Pressure) *Leave {
	return &Leave{
		Reason: cluster.ReasonPressure, Since: p.Since,
		Message: fmt.Sprintf("node %s is short of memory (%s)%s", node, p.Message, because(p.Why)),
	}
}

// leavesNode reports whether a stop or an outcome is of a task that runs elsewhere next.
func leavesNode(r cluster.ReasonCode) bool {
	switch r {
	case cluster.ReasonDrain, cluster.ReasonPressure, cluster.ReasonPreempted, cluster.ReasonTaint,
		cluster.ReasonConstraint, cluster.ReasonReserved, cluster.ReasonRebalance:
		return true
	default:
		return false
	}
}

// patient reports whether a reason for leaving is none for a service to have less than it is to have: what it lacks
// comes first.
func patient(r cluster.ReasonCode) bool {
	return r == cluster.ReasonPressure || r == cluster.ReasonRebalance
}

// barred reports whether the node takes no attempt of the task as long as the reason stands.
func (l *Leave) barred() bool {
	return l != nil && (l.Reason == cluster.ReasonTaint || l.Reason == cluster.ReasonConstraint ||
		l.Reason == cluster.ReasonReserved)
}

// begins reports whether the attempt has no more time to stay, and asks for a look when that is over.
func (p *plan) begins(l *Leave) bool {
	if l.From.After(p.now) {
		p.look(l.From)
		return false
	}
	return true
}

// target is the only node that the slot's next attempt is for, as the last one left for that; empty for any. Where that
// finds no place there for a while, any other will do.
func (p *plan) target(s *slot) string {
	t := s.newest()
	if t == nil || t.Leave == nil || t.Leave.To == "" || t.Outcome == nil || !leavesNode(t.Outcome.Reason) {
		return ""
	}
	at := t.Outcome.Ended.Add(LeavePatience)
	if !at.After(p.now) {
		return ""
	}
	p.look(at)
	return t.Leave.To
}

// yield ends the service's attempts of the slot that leave without a place elsewhere being known, as far as the budget
// grants it. This is asked before anything moves: what is given up here is not given up twice.
func (p *plan) yield(s *slot) {
	for _, t := range s.attempts {
		if t.Leave == nil || !t.Leave.Now || t.Drain != nil || !t.live() || t.stopped() || t.Desired == nil ||
			p.ended[t] != nil ||
			t.Absence != watcher.Present || !p.begins(t.Leave) {
			continue
		}
		if !p.budget.grant(s) {
			p.wait(t, fmt.Sprintf("%s goes on: %s, but %d of %d are healthy, at least %d are to be once it has stopped",
				s.id,
				t.Leave.Message, p.budget.healthy, p.budget.wanted, p.budget.least))
			continue
		}
		stop := p.stop(t, t.Leave.stop(cluster.StopVoluntary))
		stop.Event.Type = leavingEvent(t.Leave.Reason)
		p.Stops = append(p.Stops, stop)
	}
}

// evict ends a job's attempt that is to leave now, free of charge, and reports whether it does: another try follows.
func (p *plan) evict(t *Task) bool {
	if t.Leave == nil || !t.Leave.Now || !p.begins(t.Leave) {
		return false
	}
	stop := p.stop(t, t.Leave.stop(cluster.StopMandatory))
	stop.Event.Type = leavingEvent(t.Leave.Reason)
	p.Stops = append(p.Stops, stop)
	return true
}

// leavingEvent is the type of the event that tells of an attempt's leave.
func leavingEvent(r cluster.ReasonCode) string {
	if r == cluster.ReasonPreempted {
		return "task.preempted"
	}
	return "task.moving"
}

// Spare is how many healthy tasks a service can give up now to those that need their places more: what it has beyond
// the least that its update policy allows (P5.4). Of one that is to have none it is all.
func Spare(in ServiceInput) int {
	p := newPlan(in.Owner, in.Definitions, in.Now)
	p.without = in.Without
	all := slots(in.Tasks)
	if !in.wants() || in.daemon() {
		return len(all)
	}
	healthy := 0
	for _, s := range all {
		if p.counts(s) {
			healthy++
		}
	}
	return max(0, healthy-p.limits(in.Spec, in.Spec.Count).Least)
}

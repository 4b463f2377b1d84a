package reconciler

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
)

// Leave says why an attempt must leave a node that is itself well: the node is short of memory, has a taint that
// evicts, or violates a constraint of the owner; another task takes the place; or another place is better.
type Leave struct {
	// Reason is ReasonPressure, ReasonPreempted, ReasonTaint, ReasonConstraint, ReasonReserved or ReasonRebalance.
	Reason cluster.ReasonCode
	// Message explains the reason to people, as a clause that can continue: "node n1 is short of memory (96% is used)".
	Message string
	// Since is the time at which the reason came up. Among equals, the task that has to leave for longer is placed
	// first.
	Since time.Time
	// From, unless zero, is the time until which the attempt may stay.
	From time.Time
	// To, unless empty, is the only node for the next attempt.
	To string
	// Now says that the attempt ends before its next attempt has a place: a service's as the budget allows, a job's
	// immediately. A job's attempt leaves for no other reason.
	Now bool
	// For and ForAttempt, unless empty, name the attempt that takes the place.
	For        cluster.TaskID
	ForAttempt int
}

// stop returns the stop of an attempt that leaves.
func (l *Leave) stop(class cluster.StopClass) cluster.Stop {
	return cluster.Stop{Class: class, Reason: l.Reason, Message: l.Message, For: l.For, ForAttempt: l.ForAttempt}
}

// PressedLeave returns the reason for an attempt that its agent proposes to move because the node is short of memory.
func PressedLeave(node string, p *cluster.Pressure) *Leave {
	return &Leave{
		Reason: cluster.ReasonPressure, Since: p.Since,
		Message: fmt.Sprintf("node %s is short of memory (%s)%s", node, p.Message, because(p.Why)),
	}
}

// PreemptedLeave returns the leave of an attempt that ends for a more urgent task, or for one that stays within the
// quota of its cluster.
func PreemptedLeave(v *cluster.Victim) *Leave {
	l := &Leave{
		Reason: cluster.ReasonPreempted, Since: v.Since, Now: true, For: v.For, ForAttempt: v.ForAttempt,
		Message: fmt.Sprintf("preempted by %s (priority %d) on node %s", v.For, v.Priority, v.Node),
	}
	if v.Reclaims {
		parts, _ := v.For.Parts()
		l.Message = fmt.Sprintf("preempted by %s on node %s: cluster %s reclaims its quota, and this task is beyond "+
			"the quota of its own cluster", v.For, v.Node, parts.Cluster)
	}
	return l
}

// leavesNode reports whether the task of a stop or an outcome with this reason runs elsewhere next.
func leavesNode(r cluster.ReasonCode) bool {
	switch r {
	case cluster.ReasonDrain, cluster.ReasonPressure, cluster.ReasonPreempted, cluster.ReasonTaint,
		cluster.ReasonConstraint, cluster.ReasonReserved, cluster.ReasonRebalance:
		return true
	default:
		return false
	}
}

// waitsForMinimum reports whether a move for this reason waits while the service has fewer healthy tasks than its
// minimum.
func waitsForMinimum(r cluster.ReasonCode) bool {
	return r == cluster.ReasonPressure || r == cluster.ReasonRebalance
}

// barsTask reports whether the node accepts no attempt of the task while the reason lasts.
func (l *Leave) barsTask() bool {
	return l != nil && (l.Reason == cluster.ReasonTaint || l.Reason == cluster.ReasonConstraint ||
		l.Reason == cluster.ReasonReserved)
}

// mustLeaveNow reports whether the attempt's time to stay is over. If not, it requests a decision at its end.
func (p moves) mustLeaveNow(l *Leave) bool {
	if l.From.After(p.now) {
		p.decideAgainAt(l.From)
		return false
	}
	return true
}

// onlyNode returns the only node for the slot's next attempt, set by the reason for which the last attempt left; empty
// for any node. Once MoveTimeout has passed without a place there, any node suffices.
func (p moves) onlyNode(s *slot) string {
	t := s.newest()
	if t == nil || t.Leave == nil || t.Leave.To == "" || t.Outcome == nil || !leavesNode(t.Outcome.Reason) {
		return ""
	}
	at := t.Outcome.Ended.Add(MoveTimeout)
	if !at.After(p.now) {
		return ""
	}
	p.decideAgainAt(at)
	return t.Leave.To
}

// endLeaving stops the service's attempts of the slot that must leave before another place is known, as far as the
// budget allows. It runs before moves, so that the budget counts each lost task once.
func (p moves) endLeaving(s *slot) {
	for _, t := range s.attempts {
		if t.Leave == nil || !t.Leave.Now || t.Drain != nil || !t.live() || t.stopped() || t.Desired == nil ||
			p.outcomes[t] != nil ||
			t.Absence != watcher.Present || !p.mustLeaveNow(t.Leave) {
			continue
		}
		if !p.budget.grant(s) {
			p.noteDelayedStop(t,
				fmt.Sprintf("%s keeps running although %s: %s", s.id, t.Leave.Message, p.budget.text(p.budget.least)))
			continue
		}
		stop := p.newStop(t, t.Leave.stop(cluster.StopVoluntary))
		stop.Event.Type = leavingEvent(t.Leave.Reason)
		p.Stops = append(p.Stops, stop)
	}
}

// evict stops a job's attempt that must leave now, and reports whether it did. The stop is free of charge: another try
// follows.
func (p moves) evict(t *Task) bool {
	if t.Leave == nil || !t.Leave.Now || !p.mustLeaveNow(t.Leave) {
		return false
	}
	stop := p.newStop(t, t.Leave.stop(cluster.StopMandatory))
	stop.Event.Type = leavingEvent(t.Leave.Reason)
	p.Stops = append(p.Stops, stop)
	return true
}

// leavingEvent returns the type of the event that reports an attempt's leave.
func leavingEvent(r cluster.ReasonCode) string {
	if r == cluster.ReasonPreempted {
		return "task.preempted"
	}
	return "task.moving"
}

// Spare returns how many healthy tasks a service can give up now for tasks that need the places more: its healthy tasks
// beyond the minimum of its update policy (P5.4). A service with a count of 0 can give up all.
func Spare(in ServiceInput) int {
	p := newPlan(in.Owner, in.Definitions, in.Now)
	p.without, p.clockSet = in.Without, in.ClockSet
	all := slots(in.Tasks)
	if !in.wantsTasks() || in.daemon() {
		return len(all)
	}
	healthy := 0
	for _, s := range all {
		if p.countsAsHealthy(s) {
			healthy++
		}
	}
	return max(0, healthy-p.limits(in.Spec, in.Spec.Count).MinHealthy)
}

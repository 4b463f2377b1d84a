package reconciler

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/logic/watcher"
)

// moves decides which attempts leave their nodes: drained nodes, and nodes that they must leave for another reason.
type moves struct{ *plan }

// move takes a service's attempts off drained nodes, and off nodes that they must leave for another reason. A move
// begins only once the next attempt has a place. An attempt with on_disconnect keep gets its outcome and continues
// until its next attempt is healthy. A move thus never takes the service below its count. An attempt with on_disconnect
// wait must not live twice: it is stopped first, if the service is then at most one task below its count. Attempts that
// are left on a drained node at the deadline are stopped.
func (p moves) move(s *slot, template cluster.Pending) {
	for _, t := range s.attempts {
		if !t.live() || t.Desired == nil || p.outcomes[t] != nil {
			continue
		}
		if t.Drain != nil && p.drainDue(t.Drain) {
			p.endAtDeadline(t)
			continue
		}
		if t.stopped() {
			p.replaceWantedAgain(s, t, template)
			continue
		}
		if t.Desired.Definition != template.Definition {
			p.replaceAdopted(s, t, template)
			continue
		}
		if template.Daemon {
			continue
		}
		code, why, since, ok := p.reasonToLeave(t)
		if !ok {
			continue
		}
		if next, ok := p.nextAttempt(s, template); ok {
			next.Since = since
			if t.Drain == nil && t.Leave.To != "" {
				next.OnlyNode = t.Leave.To
			}
			p.startMove(s, t, Move{Next: next, From: t.node()},
				cluster.Stop{Class: cluster.StopVoluntary, Reason: code, Message: why})
		}
	}
}

// replaceAdopted replaces an attempt whose definition differs from its task's. The attempt was adopted after the store
// went back (P1.7): in the lost history, another spec had the same generation. It continues until the next attempt is
// healthy. If the two cannot live concurrently, it continues until the budget grants its stop.
func (p moves) replaceAdopted(s *slot, t *Task, template cluster.Pending) {
	if t.Absence != watcher.Present || !t.Reported {
		return
	}
	next, ok := p.nextAttempt(s, template)
	if !ok {
		return
	}
	message := fmt.Sprintf("it was adopted and runs %s instead of %s", t.Desired.Definition, template.Definition)
	if template.Daemon || p.pinned(t) || p.definitions(template.Definition).Pinned() ||
		p.disconnectPolicy(t) == cluster.DisconnectWait || next.OnDisconnect == cluster.DisconnectWait {
		if p.budget.grant(s) {
			p.addStop(t, cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonReplaced, Message: message})
		}
		return
	}
	next.Since = p.now
	c := p.conclusion(t, p.moveOutcome(t, cluster.ReasonReplaced,
		message+": it runs until its next attempt is healthy"), true)
	p.Moves = append(p.Moves, Move{Next: next, From: t.node(), Conclusion: &c})
}

// reasonToLeave returns why and since when an attempt must leave its node; ok is false if it may stay.
func (p moves) reasonToLeave(t *Task) (code cluster.ReasonCode, why string, since time.Time, ok bool) {
	switch {
	case t.Drain != nil:
		return cluster.ReasonDrain, fmt.Sprintf("node %s is drained", t.node()), t.Drain.Since, true
	case t.Leave != nil && !t.Leave.Now && t.Absence == watcher.Present && p.mustLeaveNow(t.Leave):
		return t.Leave.Reason, t.Leave.Message, t.Leave.Since, true
	}
	return "", "", time.Time{}, false
}

// startMove lets an attempt move to another node, if the budget allows it. A move for memory pressure or a better place
// waits while the service has fewer healthy tasks than its minimum: missing tasks come first.
func (p moves) startMove(s *slot, t *Task, m Move, stop cluster.Stop) {
	counted := p.budget.countsAsHealthy(s)
	if waitsForMinimum(stop.Reason) && counted && !p.budget.grantsAll && p.budget.healthy < p.budget.least {
		p.noteDelayedStop(t, fmt.Sprintf("%s stays although %s: %s", s.id, stop.Message, p.budget.text(p.budget.least)))
		return
	}
	if p.disconnectPolicy(t) != cluster.DisconnectWait && m.Next.OnDisconnect != cluster.DisconnectWait {
		c := p.conclusion(t, p.moveOutcome(t, stop.Reason, ""), true)
		if stop.Reason != cluster.ReasonDrain {
			c.Outcome.Message = stop.Message + cluster.MessageMoves + "its next attempt is healthy"
			c.Event = p.event("task.moving", t, stop.Reason, c.Outcome.Message)
		}
		m.Conclusion = &c
		p.Moves = append(p.Moves, m)
		return
	}
	// An unreachable agent could not confirm the stop. A healthy attempt that was not reported may be charged wrongly.
	if t.Absence != watcher.Present || t.healthy() && !t.Reported {
		return
	}
	stop.Message += "; the task runs elsewhere next"
	first := p.newStop(t, stop)
	if stop.Reason != cluster.ReasonDrain {
		first.Event.Type = "task.moving"
	}
	m.Stop = &first
	if counted {
		least := p.budget.leastWhileMoving()
		if waitsForMinimum(stop.Reason) {
			least = p.budget.least
		}
		if m.Limit = p.budget.spareAbove(least); m.Limit == 0 {
			p.noteDelayedStop(t,
				fmt.Sprintf("%s keeps running: %s", s.id, p.budget.text(least)))
			return
		}
	}
	p.Moves = append(p.Moves, m)
}

// replaceWantedAgain finds another place for a task that has a voluntary stop and is wanted again before its agent got
// the permit. A stop is never taken back. The attempt continues until the next one is healthy. The same is true for a
// task that is to leave its node and was not healthy when its stop was decided, but is now, so that its service cannot
// spare it.
func (p moves) replaceWantedAgain(s *slot, t *Task, template cluster.Pending) {
	if t.Desired.Stop.Permit != "" || !t.mayNotStopYet() || t.openPermitRequest() == "" ||
		p.disconnectPolicy(t) == cluster.DisconnectWait || t.Absence != watcher.Present {
		return
	}
	if leavesNode(t.Desired.Stop.Reason) {
		if _, ok := permits(p).permitted(s, t, true); ok {
			return
		}
	}
	next, ok := p.nextAttempt(s, template)
	if !ok {
		return
	}
	out := p.moveOutcome(t, cluster.ReasonReplaced,
		"its stop was requested and it is wanted again: it runs until its next attempt is healthy")
	next.Since = p.now
	c := p.conclusion(t, out, true)
	p.Moves = append(p.Moves, Move{Next: next, From: t.node(), Conclusion: &c})
}

// vacateJobTask takes a job's attempts off drained nodes. An attempt that has begun may end there until the deadline;
// one that has not begun is taken back. An attempt that must leave for another reason ends immediately.
func (p moves) vacateJobTask(s *slot) {
	for _, t := range s.attempts {
		if !t.live() || t.stopped() || t.Desired == nil || p.outcomes[t] != nil ||
			t.Observed != nil && t.Observed.State.Terminal() {
			continue
		}
		switch {
		case p.evict(t), t.Drain == nil:
		case p.drainDue(t.Drain):
			p.addStop(t, drainStop(t))
		case !lifecycle.Started(t.Attempt):
			stop := p.newStop(t, cluster.Stop{
				Class: cluster.StopMandatory, Reason: cluster.ReasonDrain,
				Message: fmt.Sprintf("node %s is drained before the task started", t.node()),
			})
			stop.Unbegun = true
			p.Stops = append(p.Stops, stop)
		}
	}
}

// stopMoved stops an attempt that moved and still runs: at the deadline, or if it does not run or its checks fail. It
// leaves attempts on unreachable nodes alone.
func (p *plan) stopMoved(t *Task) {
	o := t.Observed
	switch {
	case t.Drain != nil && p.drainDue(t.Drain):
		stop := drainStop(t)
		p.addStop(t, *endedStop(&stop))
	case t.Absence != watcher.Present || t.stopped():
	case o == nil || o.State != cluster.StateRunning || o.Health == cluster.HealthFailing:
		p.addStop(t, *endedStop(&cluster.Stop{
			Class: cluster.StopVoluntary, Reason: t.Outcome.Reason,
			Message: fmt.Sprintf("the task moves off node %s and is not healthy there", t.node()),
		}))
	}
}

func drainStop(t *Task) cluster.Stop {
	s := cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonDrain}
	if t.Drain.Force {
		s.Message = fmt.Sprintf("node %s is drained by force", t.node())
	} else {
		s.Message = fmt.Sprintf("node %s is drained, past the deadline", t.node())
	}
	return s
}

// endAtDeadline stops an attempt at the deadline of its node's drain, whatever stop it had before.
func (p moves) endAtDeadline(t *Task) {
	if t.stopped() {
		p.makeMandatory(t, drainStop(t))
		return
	}
	p.addStop(t, drainStop(t))
}

// drainDue reports whether the drain ends the node's remaining tasks now. If not, it requests a decision at the
// deadline.
func (p *plan) drainDue(d *cluster.Drain) bool {
	if p.drainEnds(d) {
		return true
	}
	if !d.Deadline.IsZero() {
		p.decideAgainAt(p.drainEnd(d))
	}
	return false
}

// drainEnds reports whether the drain is forced or its deadline has passed.
func (p *plan) drainEnds(d *cluster.Drain) bool {
	return d.Force || !d.Deadline.IsZero() && !p.drainEnd(d).After(p.now)
}

// drainEnd returns the time at which the drain ends the remaining tasks: its deadline, with the same hold as endOf.
func (p *plan) drainEnd(d *cluster.Drain) time.Time {
	return p.held(d.Deadline, d.Deadline.Sub(d.Since))
}

// moveOutcome returns the outcome of an attempt that moves. The outcome says how the attempt counts; the attempt itself
// continues.
func (p moves) moveOutcome(t *Task, code cluster.ReasonCode, message string) cluster.Outcome {
	d := t.Desired
	out := cluster.Outcome{
		Task: d.Task, Attempt: d.Attempt, UUID: d.UUID, Node: d.Node, Definition: d.Definition, Placed: d.Placed,
		State: cluster.StateCancelled, Reason: code, Message: message, Free: true, Ended: p.now,
		Started: lifecycle.Started(t.Attempt),
	}
	if message == "" {
		out.Message = fmt.Sprintf("%s%s, which is drained, and runs there until its next attempt is healthy",
			cluster.MessageMovesOff, d.Node)
	}
	if t.Observed != nil {
		out.Begun = t.Observed.Started
	}
	return out
}

// moved reports whether the outcome belongs to an attempt that moves. Without a final stop such an attempt still
// continues.
func moved(o *cluster.Outcome) bool { return o.State == cluster.StateCancelled && leavesNode(o.Reason) }

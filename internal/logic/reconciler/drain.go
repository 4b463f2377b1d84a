package reconciler

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/logic/watcher"
)

// move takes a service's attempts off nodes that are drained, and off nodes that they are to leave for another reason.
// One of class keep moves: it gets its outcome, goes on, and is stopped once its next attempt is healthy, so that Berth
// never takes the service below its count by its own act. One of class wait must not live twice: it is stopped first,
// where that leaves the service at most one task below its count. Both only once the next attempt has a place. What is
// left on a drained node at the deadline is stopped.
func (p *plan) move(s *slot, template cluster.Pending) {
	for _, t := range s.attempts {
		if !t.live() || t.Desired == nil || p.ended[t] != nil {
			continue
		}
		if t.Drain != nil && p.due(t.Drain) {
			p.endNow(t)
			continue
		}
		if t.stopped() {
			p.regret(s, t, template)
			continue
		}
		if t.Desired.Definition != template.Definition {
			p.supersede(s, t, template)
			continue
		}
		if template.Daemon {
			continue
		}
		code, why, since, ok := p.cause(t)
		if !ok {
			continue
		}
		if next, ok := p.next(s, template); ok {
			next.Since = since
			if t.Drain == nil && t.Leave.To != "" {
				next.Only = t.Leave.To
			}
			p.send(s, t, Move{Next: next, From: t.node()},
				cluster.Stop{Class: cluster.StopVoluntary, Reason: code, Message: why})
		}
	}
}

// supersede replaces an attempt that runs another definition than its task asks for. It was adopted after the store
// went back (P1.7): in what was lost, another spec had the same generation. It goes on until the next one is healthy,
// or, where the two cannot be at once, until the budget grants its end.
func (p *plan) supersede(s *slot, t *Task, template cluster.Pending) {
	if t.Absence != watcher.Present || !t.Reported {
		return
	}
	next, ok := p.next(s, template)
	if !ok {
		return
	}
	message := fmt.Sprintf("it was adopted and runs %s, and generation %d asks for %s", t.Desired.Definition,
		s.parts.Generation, template.Definition)
	if template.Daemon || p.pinned(t) || p.definitions(template.Definition).Pinned() ||
		p.class(t) == cluster.DisconnectWait || next.OnDisconnect == cluster.DisconnectWait {
		if p.budget.grant(s) {
			p.write(t, cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonReplaced, Message: message})
		}
		return
	}
	next.Since = p.now
	c := p.conclusion(t, p.departure(t, cluster.ReasonReplaced, message+": it runs until its next attempt is healthy"),
		true)
	p.Moves = append(p.Moves, Move{Next: next, From: t.node(), Conclusion: &c})
}

// cause says why an attempt is to leave its node, if it is.
func (p *plan) cause(t *Task) (code cluster.ReasonCode, why string, since time.Time, ok bool) {
	switch {
	case t.Drain != nil:
		return cluster.ReasonDrain, fmt.Sprintf("node %s is drained", t.node()), t.Drain.Since, true
	case t.Leave != nil && !t.Leave.Now && t.Absence == watcher.Present && p.begins(t.Leave):
		return t.Leave.Reason, t.Leave.Message, t.Leave.Since, true
	}
	return "", "", time.Time{}, false
}

// send lets an attempt go elsewhere, if the budget has room for that. For want of memory, or for a better place,
// nothing is moved from a service that has less than it is to have: what it lacks comes first.
func (p *plan) send(s *slot, t *Task, m Move, stop cluster.Stop) {
	counted := p.budget.counts(s)
	if patient(stop.Reason) && counted && !p.budget.open && p.budget.healthy < p.budget.least {
		p.wait(t, fmt.Sprintf("%s stays: %s, but %d of %d are healthy, at least %d are to be", s.id, stop.Message,
			p.budget.healthy, p.budget.wanted, p.budget.least))
		return
	}
	if p.class(t) != cluster.DisconnectWait && m.Next.OnDisconnect != cluster.DisconnectWait {
		c := p.conclusion(t, p.departure(t, stop.Reason, ""), true)
		if stop.Reason != cluster.ReasonDrain {
			c.Outcome.Message = stop.Message + ": it moves, and runs on until its next attempt is healthy"
			c.Event = p.event("task.moving", t, stop.Reason, c.Outcome.Message)
		}
		m.Conclusion = &c
		p.Moves = append(p.Moves, m)
		return
	}
	// nobody would say that it has stopped, or it may count
	if t.Absence != watcher.Present || t.healthy() && !t.Reported {
		return
	}
	stop.Message += "; the task runs elsewhere next"
	first := p.stop(t, stop)
	if stop.Reason != cluster.ReasonDrain {
		first.Event.Type = "task.moving"
	}
	m.Stop = &first
	if counted {
		least := p.budget.apart()
		if patient(stop.Reason) {
			least = p.budget.least
		}
		if m.Limit = p.budget.spare(least); m.Limit == 0 {
			p.wait(t, fmt.Sprintf("%s goes on: %d of %d are healthy, at least %d are to be once it has stopped", s.id,
				p.budget.healthy, p.budget.wanted, least))
			return
		}
	}
	p.Moves = append(p.Moves, m)
}

// regret finds another place for a task that was told to stop, voluntarily, and that is wanted again before its agent
// was allowed to stop it: a stop is never taken back. The attempt goes on until the next one is healthy.
func (p *plan) regret(s *slot, t *Task, template cluster.Pending) {
	if t.Desired.Stop.Permit != "" || !t.wished() || t.asks() == "" || leavesNode(t.Desired.Stop.Reason) ||
		p.class(t) == cluster.DisconnectWait || t.Absence != watcher.Present {
		return
	}
	next, ok := p.next(s, template)
	if !ok {
		return
	}
	out := p.departure(t, cluster.ReasonReplaced,
		"it was told to stop and is wanted again: it runs until its next attempt is healthy")
	next.Since = p.now
	c := p.conclusion(t, out, true)
	p.Moves = append(p.Moves, Move{Next: next, From: t.node(), Conclusion: &c})
}

// vacate empties the nodes of a job's attempts that are drained: what has begun may end there, until the deadline; what
// has not is taken back. What is to leave for another reason ends at once.
func (p *plan) vacate(s *slot) {
	for _, t := range s.attempts {
		if !t.live() || t.stopped() || t.Desired == nil || p.ended[t] != nil ||
			t.Observed != nil && t.Observed.State.Terminal() {
			continue
		}
		switch {
		case p.evict(t), t.Drain == nil:
		case p.due(t.Drain):
			p.write(t, leaveNow(t))
		case !lifecycle.Started(t.Attempt):
			stop := p.stop(t, cluster.Stop{
				Class: cluster.StopMandatory, Reason: cluster.ReasonDrain,
				Message: fmt.Sprintf("node %s is drained and the task had not begun", t.node()),
			})
			stop.Unbegun = true
			p.Stops = append(p.Stops, stop)
		}
	}
}

// leave stops an attempt that moved and still runs: at the deadline, or if it is of no use, for it does not run or its
// checks fail. A node that cannot be asked is left alone.
func (p *plan) leave(t *Task) {
	o := t.Observed
	switch {
	case t.Drain != nil && p.due(t.Drain):
		stop := leaveNow(t)
		p.write(t, *endedStop(&stop))
	case t.Absence != watcher.Present || t.stopped():
	case o == nil || o.State != cluster.StateRunning || o.Health == cluster.HealthFailing:
		p.write(t, *endedStop(&cluster.Stop{
			Class: cluster.StopVoluntary, Reason: t.Outcome.Reason,
			Message: fmt.Sprintf("the task moves off node %s and is not well there", t.node()),
		}))
	}
}

func leaveNow(t *Task) cluster.Stop {
	s := cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonDrain}
	if t.Drain.Force {
		s.Message = fmt.Sprintf("node %s is drained by force", t.node())
	} else {
		s.Message = fmt.Sprintf("node %s is drained and the deadline has passed", t.node())
	}
	return s
}

// endNow stops an attempt at the deadline of its node's drain, whatever it was told before.
func (p *plan) endNow(t *Task) {
	if t.stopped() {
		p.insist(t, leaveNow(t))
		return
	}
	p.write(t, leaveNow(t))
}

// due reports whether what is left on the node is to be stopped, and asks for a look when it will be.
func (p *plan) due(d *cluster.Drain) bool {
	if p.passed(d) {
		return true
	}
	if !d.Deadline.IsZero() {
		p.look(d.Deadline)
	}
	return false
}

// passed reports whether what is left on the node is to be stopped.
func (p *plan) passed(d *cluster.Drain) bool {
	return d.Force || !d.Deadline.IsZero() && !d.Deadline.After(p.now)
}

// departure is the outcome of an attempt that moves. It says how the attempt counts; the attempt itself goes on.
func (p *plan) departure(t *Task, code cluster.ReasonCode, message string) cluster.Outcome {
	d := t.Desired
	out := cluster.Outcome{
		Task: d.Task, Attempt: d.Attempt, UUID: d.UUID, Node: d.Node, Definition: d.Definition, Placed: d.Placed,
		State: cluster.StateCancelled, Reason: code, Message: message, Free: true, Ended: p.now,
		Started: lifecycle.Started(t.Attempt),
	}
	if message == "" {
		out.Message = fmt.Sprintf(
			"it moves off node %s, which is drained, and runs there until its next attempt is healthy", d.Node)
	}
	if t.Observed != nil {
		out.Begun = t.Observed.Started
	}
	return out
}

// moved reports whether the outcome is that of an attempt that moves; without a final stop it still goes on.
func moved(o *cluster.Outcome) bool { return o.State == cluster.StateCancelled && leavesNode(o.Reason) }

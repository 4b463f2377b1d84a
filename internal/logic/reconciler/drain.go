package reconciler

import (
	"fmt"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/logic/watcher"
)

// move empties the nodes of a service's attempts that are drained. One of class keep moves: it gets its outcome,
// goes on, and is stopped once its next attempt is healthy, so that Berth never takes the service below its count by its own
// act. One of class wait must not live twice: it is stopped first, where that leaves the service at most one task below its
// count. Both only once the next attempt has a place. What is left at the deadline is stopped.
func (p *plan) move(s *slot, template cluster.Pending) {
	for _, t := range s.attempts {
		if t.Drain == nil || !t.live() || t.stopped() || t.Desired == nil || p.ended[t] != nil {
			continue
		}
		if p.due(t.Drain) {
			p.write(t, leaveNow(t))
			continue
		}
		next, ok := p.next(s, template)
		if !ok {
			continue
		}
		next.Since = t.Drain.Since
		m := Move{Next: next, From: t.node()}
		if p.class(t) == cluster.DisconnectWait || next.OnDisconnect == cluster.DisconnectWait {
			if t.Absence != watcher.Present { // nobody would say that it has stopped
				continue
			}
			stop := p.stop(t, cluster.Stop{
				Class: cluster.StopVoluntary, Reason: cluster.ReasonDrain,
				Message: fmt.Sprintf("node %s is drained; the task runs elsewhere next", t.node()),
			})
			m.Stop = &stop
			if p.budget.counts(s) {
				if m.Limit = p.budget.spare(); m.Limit == 0 {
					continue
				}
			}
		} else {
			c := p.conclusion(t, p.departure(t), true)
			m.Conclusion = &c
		}
		p.Moves = append(p.Moves, m)
	}
}

// vacate empties the nodes of a job's attempts that are drained: what has begun may end there, until the deadline; what
// has not is taken back.
func (p *plan) vacate(s *slot) {
	for _, t := range s.attempts {
		if t.Drain == nil || !t.live() || t.stopped() || t.Desired == nil || p.ended[t] != nil ||
			t.Observed != nil && t.Observed.State.Terminal() {
			continue
		}
		switch {
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
	case p.due(t.Drain):
		stop := leaveNow(t)
		p.write(t, *endedStop(&stop))
	case t.Absence != watcher.Present || t.stopped():
	case o == nil || o.State != cluster.StateRunning || o.Health == cluster.HealthFailing:
		p.write(t, *endedStop(&cluster.Stop{
			Class: cluster.StopVoluntary, Reason: cluster.ReasonDrain,
			Message: fmt.Sprintf("node %s is drained and the task is not well on it", t.node()),
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
func (p *plan) departure(t *Task) cluster.Outcome {
	d := t.Desired
	out := cluster.Outcome{
		Task: d.Task, Attempt: d.Attempt, UUID: d.UUID, Node: d.Node, Definition: d.Definition, Placed: d.Placed,
		State: cluster.StateCancelled, Reason: cluster.ReasonDrain, Free: true, Ended: p.now,
		Message: fmt.Sprintf("it moves off node %s, which is drained, and runs there until its next attempt is healthy", d.Node),
		Started: lifecycle.Started(t.Attempt),
	}
	if t.Observed != nil {
		out.Begun = t.Observed.Started
	}
	return out
}

// moved reports whether the outcome is that of an attempt that moves; without a final stop it still goes on.
func moved(o *cluster.Outcome) bool {
	return o.State == cluster.StateCancelled && o.Reason == cluster.ReasonDrain
}

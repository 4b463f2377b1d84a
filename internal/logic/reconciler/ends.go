package reconciler

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/logic/watcher"
)

// conclude writes the outcomes of all attempts of the slot that have ended, and says whether one was.
func (p *plan) conclude(s *slot) {
	for _, t := range s.attempts {
		loss, other := p.loss(t), s.displaced(t)
		if loss == nil && other != nil {
			loss = displacedBy(other)
		}
		out, ok := lifecycle.Conclude(lifecycle.Ending{
			Attempt: t.Attempt, Loss: loss, Freed: s.freed(), Now: p.now,
		})
		if !ok {
			continue
		}
		if loss != nil && loss.Reason == cluster.ReasonRecovery && p.owner.Kind == cluster.KindJob {
			out.Started, out.Free = true, false // in doubt it ran
		}
		c := p.conclusion(t, out, p.spared(t, out))
		if other != nil {
			c.ObservedRev = other.ObservedRev // what stands where its own status would
		}
		p.Conclusions = append(p.Conclusions, c)
		p.ended[t] = &c.Outcome
	}
}

// conclusion writes the outcome of an attempt, and its final stop unless it may go on.
func (p *plan) conclusion(t *Task, out cluster.Outcome, goesOn bool) Conclusion {
	out.Owner = p.owner
	if out.Definition == (cluster.Ref{}) {
		out.Definition = p.definition
	}
	c := Conclusion{Outcome: out, DesiredRev: t.DesiredRev, ObservedRev: t.ObservedRev}
	if d := t.Desired; d != nil && !goesOn {
		d := *d
		d.Stop = endedStop(d.Stop)
		c.Desired = &d
	}
	c.Event = p.event("task."+string(out.State), t, out.Reason, out.Message)
	return c
}

// spared reports whether a lost attempt may go on if its node returns: that of a service whose class is keep
// and that nobody told to stop.
func (p *plan) spared(t *Task, out cluster.Outcome) bool {
	return out.State == cluster.StateLost && out.Reason != cluster.ReasonRecovery &&
		p.owner.Kind == cluster.KindService && t.Absence != watcher.Gone &&
		!t.stopped() && p.class(t) == cluster.DisconnectKeep
}

// endedStop returns the stop of an attempt whose outcome is durable.
func endedStop(prev *cluster.Stop) *cluster.Stop {
	if prev != nil {
		s := *prev
		s.Ended = true
		return &s
	}
	return &cluster.Stop{
		Class: cluster.StopMandatory, Reason: cluster.ReasonEnded, Message: "the attempt has an outcome", Ended: true,
	}
}

// class returns what happens to the attempt when its node is silent.
func (p *plan) class(t *Task) cluster.OnDisconnect {
	if t.Desired != nil && t.Desired.OnDisconnect != "" {
		return t.Desired.OnDisconnect
	}
	if p.owner.Kind == cluster.KindJob {
		return cluster.DisconnectWait
	}
	return cmp.Or(p.disconnect, cluster.DisconnectKeep)
}

// loss returns why the attempt is lost, or nil. A wait task is never lost by silence (P6.3).
func (p *plan) loss(t *Task) *lifecycle.Loss {
	switch t.Absence {
	case watcher.Gone:
		return &lifecycle.Loss{Reason: cluster.ReasonNodeDown, Message: fmt.Sprintf("node %s is gone", t.node())}
	case watcher.Silent:
		if p.class(t) == cluster.DisconnectWait {
			return nil
		}
		return &lifecycle.Loss{Reason: cluster.ReasonNodeDown, Message: fmt.Sprintf("node %s fell silent", t.node())}
	case watcher.Present, watcher.Suspected:
	}
	if p.forsaken(t) {
		return &lifecycle.Loss{Reason: cluster.ReasonRecovery, Message: fmt.Sprintf(
			"the store went back to before its end: node %s does not know it any more", t.node())}
	}
	return nil
}

// clean deletes what stands of attempts that have an outcome and of which nothing is left.
func (p *plan) clean(s *slot) {
	for _, t := range s.attempts {
		if t.Outcome == nil || !t.stands() {
			continue
		}
		switch {
		case t.Absence == watcher.Gone:
		case t.Observed != nil && t.Observed.Gone && t.Observed.UUID == t.uuid():
		case s.displaced(t) != nil:
		default:
			continue
		}
		c := Cleanup{
			Task: s.id, Attempt: t.number(), UUID: t.uuid(), Node: t.node(),
			DesiredRev: t.DesiredRev, ObservedRev: t.ObservedRev,
		}
		if t.Desired != nil {
			c.Plan = t.Desired.Plan
		}
		p.Cleanups = append(p.Cleanups, c)
	}
}

// trim deletes all outcomes of the slot but the newest so many. It spares attempts of which a record stands, and the
// newest attempt while any record of the task stands: it tells which number comes next.
func (p *plan) trim(s *slot, keep int) {
	if s.stands() {
		keep = max(keep, 1)
	}
	for i := 0; i < len(s.attempts)-keep; i++ {
		if t := s.attempts[i]; t.Outcome != nil && !t.stands() {
			p.Trims = append(p.Trims, Trim{s.id, t.number()})
		}
	}
}

// settle stops attempts that have an outcome and still stand without a final stop: lost attempts of a keep service
// whose node returned, those that moved, and what an agent holds without a desired record. Where nothing of them runs
// any more it does so at once; where the owner does not want the task, too, with the stop for its other attempts; else
// once a newer attempt is healthy (P5.1, P6.4), or where it is of no use.
func (p *plan) settle(s *slot, unwanted *cluster.Stop) {
	for _, t := range s.attempts {
		if t.Outcome == nil || !t.stands() || t.Absence == watcher.Gone || t.Observed != nil && t.Observed.Gone {
			continue
		}
		if t.Desired != nil && t.Desired.Ended() {
			switch {
			case unwanted != nil:
				p.insist(t, *unwanted)
			case p.mustEnd(t):
				p.insist(t, leaveNow(t))
			}
			continue
		}
		newest := s.newest()
		switch {
		case t.Desired == nil, p.owner.Kind == cluster.KindJob, over(t):
			p.write(t, *endedStop(nil))
		case unwanted != nil:
			p.write(t, *endedStop(unwanted))
		case t.Absence == watcher.Present && newest != t && (p.stays(newest) || p.without.Off(clause.Permit)):
			p.write(t, cluster.Stop{
				Class: cluster.StopVoluntary, Reason: cluster.ReasonReplaced,
				Message: fmt.Sprintf("attempt %d took its place", newest.number()), Ended: true,
			})
		case t.Absence == watcher.Present && s.last(t) && p.pinned(t) && p.placeless(t) &&
			(!t.healthy() || p.budget.grant(s)):
			// Its next attempt may have no other place than the one that it holds itself. Where it is an earlier one
			// that is well, which moved away and goes on, nothing is given up with this one.
			p.write(t, cluster.Stop{
				Class: cluster.StopVoluntary, Reason: cluster.ReasonReplaced,
				Message: "it was given up, and the next attempt takes its place", Ended: true,
			})
		case moved(t.Outcome) && (t.Drain != nil || t.Outcome.Reason != cluster.ReasonDrain):
			p.leave(t)
		}
	}
}

// last reports whether nothing stands of any later attempt of the slot.
func (s *slot) last(t *Task) bool {
	return !slices.ContainsFunc(s.attempts, func(o *Task) bool { return o.stands() && o.number() > t.number() })
}

// placeless reports whether the attempt has an outcome and may hold the only place that its next attempt could have.
// One that moves off a node that is not emptied had another place when it was sent away, which is given a while.
func (p *plan) placeless(t *Task) bool {
	switch {
	case t.Outcome.State == cluster.StateLost:
		return true
	case t.Drain != nil || !moved(t.Outcome) || t.Leave.barred():
		return false
	case t.Outcome.Reason == cluster.ReasonDrain:
		return true
	}
	at := t.Outcome.Ended.Add(LeavePatience)
	if at.After(p.now) {
		p.look(at)
		return false
	}
	return true
}

// pinned reports whether no two tasks of the attempt's definition can share a node.
func (p *plan) pinned(t *Task) bool {
	if t.Desired == nil {
		return false
	}
	d := p.definitions(t.Desired.Definition)
	return d != nil && d.Pinned()
}

// over reports whether the agent saw the attempt end.
func over(t *Task) bool {
	return t.Observed != nil && t.Observed.UUID == t.uuid() && t.Observed.State.Terminal()
}

// halt tells the live attempts of a slot to stop, unless they were told. What was only wished for is insisted on, if it
// must be.
func (p *plan) halt(s *slot, stop cluster.Stop) {
	for _, t := range s.attempts {
		switch {
		case !t.live() || p.ended[t] != nil:
		case t.stopped() && p.mustEnd(t):
			p.insist(t, leaveNow(t))
		case t.stopped():
			p.insist(t, stop)
		default:
			p.write(t, stop)
		}
	}
}

// write records a stop of the attempt. One without a desired record gets one made of what its agent reported. Where the
// drain of its node ends it now, no stop of it is a matter of choice.
func (p *plan) write(t *Task, stop cluster.Stop) {
	if t.Drain != nil && p.passed(t.Drain) {
		stop.Class = cluster.StopMandatory
	}
	p.Stops = append(p.Stops, p.stop(t, stop))
}

func (p *plan) stop(t *Task, stop cluster.Stop) Stop {
	var d cluster.Desired
	if t.Desired != nil {
		d = *t.Desired
	} else {
		d = cluster.Desired{
			Task: t.id(), Attempt: t.number(), UUID: t.uuid(), Node: t.node(), Owner: p.owner, Definition: p.definition,
		}
		if o := t.Observed; o != nil && o.Definition != (cluster.Ref{}) {
			d.Definition, d.Count, d.Ports, d.Devices = o.Definition, o.Count, o.Ports, o.Devices
		}
	}
	d.Stop = &stop
	return Stop{Desired: d, Rev: t.DesiredRev, Event: p.event("task.stopping", t, stop.Reason, stop.Message)}
}

func (p *plan) event(kind string, t *Task, reason cluster.ReasonCode, message string) cluster.Event {
	owner := p.owner
	return cluster.Event{
		Type: kind, Cluster: owner.Cluster, Owner: &owner, Task: t.id(), Attempt: t.number(), Node: t.node(),
		Reason: reason, Message: message,
	}
}

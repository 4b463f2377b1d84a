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

// endings writes the outcomes of attempts that ended, and deletes what is left of them.
type endings struct{ *plan }

// conclude writes the outcomes of all ended attempts of the slot.
func (p endings) conclude(s *slot) {
	for _, t := range s.attempts {
		loss, other := p.loss(t), s.displaced(t)
		if loss == nil && other != nil {
			loss = displacedBy(other)
		}
		out, ok := lifecycle.Conclude(lifecycle.Ending{
			Attempt: t.Attempt, Loss: loss, FreeLosses: s.freeLosses(), Idempotent: s.idempotent, Now: p.now,
		})
		if !ok {
			continue
		}
		if loss != nil && loss.Reason == cluster.ReasonRecovery && p.owner.Kind == cluster.KindJob {
			out.Started, out.Free = true, out.Free && s.idempotent // it may have run: assume so
		}
		c := p.conclusion(t, out, p.maySurviveLoss(t, out))
		if other != nil {
			c.ObservedRev = other.ObservedRev // the other attempt's status has its key
		}
		p.Conclusions = append(p.Conclusions, c)
		p.outcomes[t] = &c.Outcome
	}
}

// conclusion returns the outcome of an attempt, together with its final stop unless goesOn.
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

// maySurviveLoss reports whether a lost attempt may continue if its node returns. This holds for a service's attempt
// with on_disconnect keep that has no stop.
func (p endings) maySurviveLoss(t *Task, out cluster.Outcome) bool {
	return out.State == cluster.StateLost && out.Reason != cluster.ReasonRecovery &&
		p.owner.Kind == cluster.KindService && t.Absence != watcher.Gone &&
		!t.stopped() && p.disconnectPolicy(t) == cluster.DisconnectKeep
}

// endedStop returns the final stop of an attempt with a durable outcome.
func endedStop(prev *cluster.Stop) *cluster.Stop {
	if prev != nil {
		s := *prev
		s.Ended = true
		return &s
	}
	return cluster.EndedStop()
}

// disconnectPolicy returns the policy for the attempt while its node is silent.
func (p *plan) disconnectPolicy(t *Task) cluster.OnDisconnect {
	if t.Desired != nil && t.Desired.OnDisconnect != "" {
		return t.Desired.OnDisconnect
	}
	if p.owner.Kind == cluster.KindJob {
		return cluster.DisconnectWait
	}
	return cmp.Or(p.disconnect, cluster.DisconnectKeep)
}

// loss returns why the attempt is lost, or nil. Silence never makes an attempt with on_disconnect wait lost (P6.3).
func (p endings) loss(t *Task) *lifecycle.Loss {
	switch t.Absence {
	case watcher.Gone:
		return &lifecycle.Loss{Reason: cluster.ReasonNodeDown, Message: fmt.Sprintf("node %s is gone", t.node())}
	case watcher.Silent:
		if p.disconnectPolicy(t) == cluster.DisconnectWait {
			return nil
		}
		return &lifecycle.Loss{Reason: cluster.ReasonNodeDown, Message: fmt.Sprintf("node %s fell silent", t.node())}
	case watcher.Present, watcher.Suspected:
	}
	if p.unknownToNode(t) {
		return &lifecycle.Loss{Reason: cluster.ReasonRecovery, Message: fmt.Sprintf(
			"node %s no longer knows it: the store was restored to a time before its end", t.node())}
	}
	return nil
}

// keepWanted deals with the earlier attempts of a wanted task of a service, and with those that the store does not
// know. want is the desired record of an attempt of the task.
func (p endings) keepWanted(s *slot, want cluster.Desired) {
	claims(p).claimUnrecorded(s, want)
	if p.reconnect(s) {
		return
	}
	p.stopEnded(s, nil)
	p.trim(s, p.policy.keptOutcomes())
}

// reconnect deletes the outcome of the slot's newest attempt if that attempt was lost with its node, the node returned
// with it, and no later attempt was placed. It reports whether it does. Otherwise the next attempt waits for room on
// another node, although the task runs. In a fleet without such room it never gets any.
func (p endings) reconnect(s *slot) bool {
	if !s.mayReconnect() {
		return false
	}
	t := s.newest()
	p.reconnects[s] = true
	p.Reconnects = append(p.Reconnects, Reconnect{
		Task: s.id, Attempt: t.number(), Event: p.event("task.reconnected", t, cluster.ReasonNodeDown, fmt.Sprintf(
			"node %s is back before another attempt was placed: the attempt goes on", t.node())),
	})
	return true
}

// mayReconnect reports whether the newest attempt of a service's slot was lost with its node, and reported again.
func (s *slot) mayReconnect() bool {
	t := s.newest()
	if t == nil || t.Outcome == nil || t.Outcome.State != cluster.StateLost ||
		t.Outcome.Reason != cluster.ReasonNodeDown || t.Desired == nil || t.stopped() || !t.nodeReported() ||
		t.DesiredRev == 0 {
		return false
	}
	o := t.Observed
	return o != nil && o.UUID == t.uuid() && !o.State.Terminal() && !o.Gone
}

// clean deletes the remaining records of attempts that have an outcome and no remains on any node.
func (p endings) clean(s *slot) {
	for _, t := range s.attempts {
		if t.Outcome == nil || !t.hasRecords() {
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

// trim deletes all outcomes of the slot but the newest ones, as many as keep says. It spares attempts that have other
// records. While any record of the task exists it also spares the newest attempt, which determines the next number.
func (p endings) trim(s *slot, keep int) {
	if s.hasRecords() {
		keep = max(keep, 1)
	}
	for i := 0; i < len(s.attempts)-keep; i++ {
		if t := s.attempts[i]; t.Outcome != nil && !t.hasRecords() {
			p.Trims = append(p.Trims, Trim{s.id, t.number()})
		}
	}
}

// stopEnded stops attempts that have an outcome and still have records without a final stop. They are lost attempts
// with on_disconnect keep whose node returned, moved attempts, and attempts that an agent holds without a desired
// record. An attempt that runs no more is stopped immediately. If the owner does not want the task, the attempt gets
// the same stop as the task's other attempts. Otherwise it is stopped once a newer attempt is healthy (P5.1, P6.4), or
// if it is of no use.
func (p *plan) stopEnded(s *slot, unwanted *cluster.Stop) {
	for _, t := range s.attempts {
		if t.Outcome == nil || !t.hasRecords() || t.Absence == watcher.Gone || t.Observed != nil && t.Observed.Gone {
			continue
		}
		if t.Desired != nil && t.Desired.Ended() {
			switch {
			case unwanted != nil:
				p.makeMandatory(t, *unwanted)
			case p.drainEndsNow(t):
				p.makeMandatory(t, drainStop(t))
			}
			continue
		}
		newest := s.newest()
		switch {
		case t.Desired == nil, p.owner.Kind == cluster.KindJob, endObserved(t), t.neverArrived():
			p.addStop(t, *endedStop(nil))
		case unwanted != nil:
			p.addStop(t, *endedStop(unwanted))
		case t.Absence == watcher.Present && newest != t && (p.confirmedHealthy(newest) ||
			p.without.Off(clause.Permit)):
			p.addStop(t, cluster.Stop{
				Class: cluster.StopVoluntary, Reason: cluster.ReasonReplaced,
				Message: fmt.Sprintf("replaced by attempt %d", newest.number()), Ended: true,
			})
		case t.Absence == watcher.Present && s.hasNoLaterRecord(t) && p.pinned(t) && p.mayHoldOnlyPlace(t) &&
			(!t.healthy() || p.budget.grant(s)):
			// The next attempt may have no other place than the one that this attempt holds. An earlier attempt of the
			// task that is healthy, moved away and continues keeps the task healthy meanwhile.
			p.addStop(t, cluster.Stop{
				Class: cluster.StopVoluntary, Reason: cluster.ReasonReplaced,
				Message: "given up for the next attempt", Ended: true,
			})
		case moved(t.Outcome) && (t.Drain != nil || t.Outcome.Reason != cluster.ReasonDrain):
			p.stopMoved(t)
		}
	}
}

// neverArrived reports whether the attempt's node reported in full and does not know it. With an outcome, the attempt
// was lost before the agent received it, and the dispatcher does not send it any more. Its record would keep the next
// attempt off the node (P3.6).
func (t *Task) neverArrived() bool { return t.Observed == nil && t.nodeReported() }

// hasNoLaterRecord reports whether no later attempt of the slot has a record.
func (s *slot) hasNoLaterRecord(t *Task) bool {
	return !slices.ContainsFunc(s.attempts, func(o *Task) bool { return o.hasRecords() && o.number() > t.number() })
}

// mayHoldOnlyPlace reports whether the attempt has an outcome and may hold the only possible place of its next attempt.
// An attempt that moved off a node that is not drained had another place when its move began. That place is waited for
// until MoveTimeout.
func (p *plan) mayHoldOnlyPlace(t *Task) bool {
	switch {
	case t.Outcome.State == cluster.StateLost:
		return true
	case t.Drain != nil || !moved(t.Outcome) || t.Leave.barsTask():
		return false
	case t.Outcome.Reason == cluster.ReasonDrain:
		return true
	}
	at := t.Outcome.Ended.Add(MoveTimeout)
	if at.After(p.now) {
		p.decideAgainAt(at)
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

// endObserved reports whether the agent saw the attempt end.
func endObserved(t *Task) bool {
	return t.Observed != nil && t.Observed.UUID == t.uuid() && t.Observed.State.Terminal()
}

// stopLive stops the live attempts of a slot that have no stop yet. A voluntary stop becomes mandatory where the new
// stop, or the drain of the node, demands it.
func (p *plan) stopLive(s *slot, stop cluster.Stop) {
	for _, t := range s.attempts {
		switch {
		case !t.live() || p.outcomes[t] != nil:
		case t.stopped() && p.drainEndsNow(t):
			p.makeMandatory(t, drainStop(t))
		case t.stopped():
			p.makeMandatory(t, stop)
		default:
			p.addStop(t, stop)
		}
	}
}

// addStop adds a stop of the attempt to the decision. An attempt without a desired record gets one from its agent's
// report. The stop is mandatory if the drain of the node ends the attempt now.
func (p *plan) addStop(t *Task, stop cluster.Stop) {
	if t.Drain != nil && p.drainEnds(t.Drain) {
		stop.Class = cluster.StopMandatory
	}
	p.Stops = append(p.Stops, p.newStop(t, stop))
}

func (p *plan) newStop(t *Task, stop cluster.Stop) Stop {
	var d cluster.Desired
	if t.Desired != nil {
		d = *t.Desired
	} else {
		d = cluster.Desired{
			Task: t.id(), Attempt: t.number(), UUID: t.uuid(), Node: t.node(), Owner: p.owner, Definition: p.definition,
		}
		if o := t.Observed; o != nil {
			d.Plan = o.Plan
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

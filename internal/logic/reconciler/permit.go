package reconciler

import (
	"fmt"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
)

// permits answers the agents that request a permit (P5.2).
type permits struct{ *plan }

// permit answers agents that ask whether they may carry out a voluntary stop of the slot's attempts (P5.2). The stop
// was charged when it was decided. The budget is checked again now, so that failures since then count too. A refused
// request needs no answer: the agent continues and asks again.
func (p permits) permit(s *slot, wanted bool) {
	for _, t := range s.attempts {
		if !t.mayNotStopYet() || t.Absence != watcher.Present || p.outcomes[t] != nil || p.drainEndsNow(t) ||
			!t.live() && !t.Desired.Ended() {
			continue
		}
		least, ok := p.permitted(s, t, wanted)
		if !ok {
			p.noteDelayedStop(t, fmt.Sprintf("%s keeps running: %d/%d healthy without it, min_healthy is %d", s.id,
				p.budget.healthyWithout(s), p.budget.wanted, least))
			continue
		}
		if ask := t.openPermitRequest(); ask != "" {
			stop := *t.Desired.Stop
			stop.Permit = ask
			next := p.newStop(t, stop)
			next.Event = p.event("task.permitted", t, stop.Reason, fmt.Sprintf(
				"may stop: %d/%d healthy without it, min_healthy is %d", p.budget.healthyWithout(s), p.budget.wanted,
				least))
			delete(p.budget.awaitingPermit, s)
			p.Stops = append(p.Stops, next)
		}
	}
}

// permitted reports whether the attempt may be given up now, and how many tasks must be healthy. An attempt that is not
// healthy has nothing to lose, and a task with another healthy attempt loses nothing. A wanted task that must not live
// twice has to end before it can run again.
func (p permits) permitted(s *slot, t *Task, wanted bool) (least int, ok bool) {
	b := &p.budget
	least = b.least
	if p.disconnectPolicy(t) == cluster.DisconnectWait && t.live() && wanted {
		least = b.leastWhileMoving()
	}
	return least, b.grantsAll || !t.Observed.Healthy() || t.Observed.Gone || b.countsAsHealthy(s) ||
		b.healthyWithout(s) >= least
}

// mayNotStopYet reports whether the attempt has a voluntary stop and still runs without a permit that it can use.
func (t *Task) mayNotStopYet() bool {
	if !t.stopped() || t.Desired.Stop.Class != cluster.StopVoluntary || endObserved(t) || t.Observed != nil &&
		t.Observed.Gone {
		return false
	}
	return t.Desired.Stop.Permit == "" || t.openPermitRequest() != ""
}

// openPermitRequest returns the agent's unanswered request for a permit, or nothing.
func (t *Task) openPermitRequest() string {
	o := t.Observed
	if o == nil || o.UUID != t.uuid() || o.Ask == t.Desired.Stop.Permit {
		return ""
	}
	return o.Ask
}

// drainEndsNow reports whether the drain of the attempt's node ends it now.
func (p *plan) drainEndsNow(t *Task) bool { return t.Drain != nil && p.drainEnds(t.Drain) }

// makeMandatory turns a voluntary stop into a mandatory one, which needs no permit.
func (p *plan) makeMandatory(t *Task, stop cluster.Stop) {
	if t.stopped() && stop.Class == cluster.StopMandatory && t.Desired.Stop.Class == cluster.StopVoluntary &&
		!endObserved(t) {
		stop.Ended = t.Desired.Stop.Ended
		p.addStop(t, stop)
	}
}

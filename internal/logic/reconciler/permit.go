package reconciler

import (
	"fmt"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
)

// permit answers the agents that ask whether they may carry out a voluntary stop of the slot's attempts (P5.2). The
// stop was charged when it was wished for; now that its agent is there to carry it out the budget is looked at again,
// so that what failed by itself meanwhile is weighed too. Whatever asks and is refused is answered later, when enough
// are healthy: an ask needs no answer, for the agent goes on and asks anew.
func (p *plan) permit(s *slot, wanted bool) {
	for _, t := range s.attempts {
		if !t.wished() || t.Absence != watcher.Present || p.ended[t] != nil || p.mustEnd(t) || !t.live() &&
			!t.Desired.Ended() {
			continue
		}
		least, ok := p.permitted(s, t, wanted)
		if !ok {
			p.wait(t, fmt.Sprintf("%s goes on: %d of %d are healthy without it, at least %d are to be",
				s.id, p.budget.without(s), p.budget.wanted, least))
			continue
		}
		if ask := t.asks(); ask != "" {
			stop := *t.Desired.Stop
			stop.Permit = ask
			next := p.stop(t, stop)
			next.Event = p.event("task.permitted", t, stop.Reason, fmt.Sprintf(
				"it may stop: %d of %d are healthy without it, at least %d are to be", p.budget.without(s),
				p.budget.wanted, least))
			delete(p.budget.asking, s)
			p.Stops = append(p.Stops, next)
		}
	}
}

// permitted reports whether the attempt may be given up as things stand: what is not healthy has nothing to lose, and
// nothing is lost where another attempt of the task is healthy. A task that is wanted, and of which two must not live
// at once, has to end before it can run again. It also returns how many are to be healthy.
func (p *plan) permitted(s *slot, t *Task, wanted bool) (least int, ok bool) {
	b := &p.budget
	least = b.least
	if r := t.Desired.Stop.Reason; p.class(t) == cluster.DisconnectWait && t.live() && wanted && !patient(r) &&
		r != cluster.ReasonPreempted {
		least = b.apart()
	}
	return least, b.open || !t.Observed.Healthy() || t.Observed.Gone || b.counts(s) || b.without(s) >= least
}

// wished reports whether the attempt was told to stop, voluntarily, and still runs without a permit that it can use.
func (t *Task) wished() bool {
	if !t.stopped() || t.Desired.Stop.Class != cluster.StopVoluntary || over(t) || t.Observed != nil &&
		t.Observed.Gone {
		return false
	}
	return t.Desired.Stop.Permit == "" || t.asks() != ""
}

// asks returns the agent's ask for a permit that has not been answered, or nothing.
func (t *Task) asks() string {
	o := t.Observed
	if o == nil || o.UUID != t.uuid() || o.Ask == t.Desired.Stop.Permit {
		return ""
	}
	return o.Ask
}

// mustEnd reports whether the drain of the attempt's node ends it now.
func (p *plan) mustEnd(t *Task) bool { return t.Drain != nil && p.passed(t.Drain) }

// insist turns a wish into a stop that needs no permit: what was asked for as a favour must happen now.
func (p *plan) insist(t *Task, stop cluster.Stop) {
	if t.stopped() && stop.Class == cluster.StopMandatory && t.Desired.Stop.Class == cluster.StopVoluntary && !over(t) {
		stop.Ended = t.Desired.Stop.Ended
		p.write(t, stop)
	}
}

package reconciler

import (
	"fmt"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
)

// claim deals with attempts of a wanted task that run and have no desired record: the store went back to before they
// were placed, or somebody deleted their records (P1.7, P3.9). The newest is adopted, with what its agent was told,
// unless the store knows a live attempt of the task. What cannot be adopted is stopped, by a record (P6.6). As long as
// a node that may run the task is not heard nothing is done.
func (p *plan) claim(s *slot, want cluster.Desired) {
	for _, t := range s.attempts {
		o := t.Observed
		if t.Desired != nil || !t.live() || p.ended[t] != nil || o == nil || o.State.Terminal() || !t.asked() ||
			s.crowded(t) {
			continue
		}
		if o.Definition != (cluster.Ref{}) {
			want.Definition = o.Definition
		}
		switch other := p.rival(s, t); {
		case !p.recovery.StopBefore.IsZero() && (o.Started.IsZero() || o.Started.Before(p.recovery.StopBefore)):
			p.refuse(t, "the store went back and the operator said to stop what it does not know")
		case s.newest() != t:
			p.refuse(t, "the store has no record of it, and a later attempt stands")
		case other != nil && (!other.asked() || p.ended[other] != nil): // once that has its outcome
		case other != nil:
			p.refuse(t, fmt.Sprintf("the store has no record of it, and attempt %d stands", other.number()))
		case p.definitions(want.Definition) == nil:
			p.refuse(t, fmt.Sprintf("the store has no record of it, nor of its definition %s", want.Definition))
		default:
			p.adopt(t, want)
		}
	}
}

// asked reports whether the attempt's node reported in full to this leader and can be asked.
func (t *Task) asked() bool { return t.Absence == watcher.Present && t.Reported }

// rival returns another attempt of the task that has no outcome.
func (p *plan) rival(s *slot, t *Task) *Task {
	for _, other := range s.attempts {
		if other != t && other.live() {
			return other
		}
	}
	return nil
}

func (p *plan) refuse(t *Task, why string) {
	p.write(t, cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonRecovery, Message: why})
}

func (p *plan) adopt(t *Task, d cluster.Desired) {
	o := t.Observed
	d.Task, d.Attempt, d.UUID, d.Node, d.Ports, d.Devices = o.Task, o.Attempt, o.UUID, t.node(), o.Ports, o.Devices
	if o.Count > 0 {
		d.Count = o.Count
	}
	if d.Placed = o.Started; d.Placed.IsZero() {
		d.Placed = p.now
	}
	p.Adoptions = append(p.Adoptions, Adoption{
		Desired: d, ObservedRev: t.ObservedRev,
		Event: p.event("task.adopted", t, cluster.ReasonRecovery,
			"it runs and the store had no record of it; its owner wants it"),
	})
}

// forsaken reports whether the attempt was placed before the store went back and its node, which reported in full, does
// not know it: it ended in what was lost, or was never told. It is not begun again in place (P4.4).
func (p *plan) forsaken(t *Task) bool {
	d := t.Desired
	return d != nil && t.Observed == nil && t.asked() && d.Token.Incarnation != 0 &&
		d.Token.Incarnation < p.recovery.Incarnation
}

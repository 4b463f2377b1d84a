package reconciler

import (
	"fmt"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
)

// claims deals with attempts that run without a desired record.
type claims struct{ *plan }

// claimUnrecorded handles running attempts of a wanted task that have no desired record. The store went back to before
// their placement, or a foreign writer deleted their records (P1.7, P3.9). The newest attempt is adopted with its
// agent's data, unless the store knows a live attempt of the task. An attempt that cannot be adopted is stopped by a
// record (P6.6). Nothing happens while a node that may run the task does not answer.
func (p claims) claimUnrecorded(s *slot, want cluster.Desired) {
	for _, t := range s.attempts {
		o := t.Observed
		if t.Desired != nil || !t.live() || p.outcomes[t] != nil || o == nil || o.State.Terminal() ||
			!t.nodeReported() || s.keyTaken(t) {
			continue
		}
		if o.Definition != (cluster.Ref{}) {
			want.Definition = o.Definition
		}
		switch other := p.otherLive(s, t); {
		case !p.recovery.StopBefore.IsZero() && (o.Started.IsZero() || o.Started.Before(p.recovery.StopBefore)):
			p.refuseAdoption(t, "unknown to the restored store, and the operator chose to stop such tasks")
		case s.newest() != t:
			p.refuseAdoption(t, "unknown to the store, and a later attempt exists")
		case other != nil && (!other.nodeReported() || p.outcomes[other] != nil): // wait for its outcome
		case other != nil:
			p.refuseAdoption(t, fmt.Sprintf("unknown to the store, and attempt %d exists", other.number()))
		case p.definitions(want.Definition) == nil:
			p.refuseAdoption(t, fmt.Sprintf("unknown to the store, as is its definition %s", want.Definition))
		default:
			p.adopt(t, want)
		}
	}
}

// nodeReported reports whether the attempt's node is present and this leader has its full report.
func (t *Task) nodeReported() bool { return t.Absence == watcher.Present && t.Reported }

// otherLive returns another attempt of the task that has no outcome.
func (p claims) otherLive(s *slot, t *Task) *Task {
	for _, other := range s.attempts {
		if other != t && other.live() {
			return other
		}
	}
	return nil
}

func (p claims) refuseAdoption(t *Task, why string) {
	p.addStop(t, cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonRecovery, Message: why})
}

func (p claims) adopt(t *Task, d cluster.Desired) {
	o := t.Observed
	d.Task, d.Attempt, d.UUID, d.Node, d.Ports, d.Devices = o.Task, o.Attempt, o.UUID, t.node(), o.Ports, o.Devices
	d.Plan = o.Plan
	if o.Count > 0 {
		d.Count = o.Count
	}
	if d.Placed = o.Started; d.Placed.IsZero() {
		d.Placed = p.now
	}
	p.Adoptions = append(p.Adoptions, Adoption{
		Desired: d, ObservedRev: t.ObservedRev,
		Event: p.event("task.adopted", t, cluster.ReasonRecovery,
			"it runs, the store had no record of it, and its owner needs it"),
	})
}

// unknownToNode reports whether the attempt was placed before the store went back and its node does not know it. Its
// node reported in full, so the attempt ended in the lost history or never arrived. It is not begun again in place
// (P4.4).
func (p endings) unknownToNode(t *Task) bool {
	d := t.Desired
	return d != nil && t.Observed == nil && t.nodeReported() && d.Token.Incarnation != 0 &&
		d.Token.Incarnation < p.recovery.Incarnation
}

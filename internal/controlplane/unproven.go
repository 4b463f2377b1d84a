package controlplane

import (
	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// unproven returns what a decision asks to be placed: what it says, unless a clause is switched off. Without P3.7 it
// asks for the attempts that follow once its own outcomes are written, before they are; without P3.6 it does not mind
// where earlier attempts stand. That is for proofs alone.
func (l *loop) unproven(snap *store.Snapshot, o cluster.OwnerRef, tasks []reconciler.Task,
	d reconciler.Decision,
) []cluster.Pending {
	pending, without := d.Pending, l.config.Without
	if without.Off(clause.NextAttempt) && len(d.Conclusions) > 0 {
		for i := range tasks {
			for j := range d.Conclusions {
				out := &d.Conclusions[j].Outcome
				if t := &tasks[i]; t.Desired != nil && t.Desired.UUID == out.UUID {
					t.Outcome = out
				}
			}
		}
		pending = l.reconcile(snap, o, tasks).Pending
	}
	if without.Off(clause.CleanNode) {
		for i := range pending {
			pending[i].Avoid = nil
		}
	}
	return pending
}

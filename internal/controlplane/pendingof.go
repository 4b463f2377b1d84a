package controlplane

import (
	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/observe"
)

// pendingOf returns the pending tasks of a decision, which differ only if a clause is switched off. Without P3.7 it
// adds attempts that follow from the decision's own outcomes before these are written. Without P3.6 it ignores where
// earlier attempts are. Clauses are switched off in proofs alone.
func pendingOf(domain *observe.Domain, o cluster.OwnerRef, tasks []reconciler.Task,
	d reconciler.Decision,
) []cluster.Pending {
	pending, without := d.Pending, domain.Without
	if without.Off(clause.NextAttempt) && len(d.Conclusions) > 0 {
		for i := range tasks {
			for j := range d.Conclusions {
				out := &d.Conclusions[j].Outcome
				if t := &tasks[i]; t.Desired != nil && t.Desired.UUID == out.UUID {
					t.Outcome = out
				}
			}
		}
		pending = domain.Decide(o, tasks).Pending
	}
	if without.Off(clause.CleanNode) {
		for i := range pending {
			pending[i].ExcludedNodes = nil
		}
	}
	return pending
}

package reconciler

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// gates returns the results of the gates that the rollout has to pass. It is empty before any task is healthy, for a
// version that was healthy before, and for a service's first version.
func (r *rollout) gates() []cluster.GateResult {
	if r.rec.Most == 0 || r.wasHealthyBefore() || r.firstEver() {
		return nil
	}
	all := make([]cluster.GateResult, len(r.spec.Update.Gates))
	// results count only for the present number of healthy tasks
	seen := r.in.Rollout != nil && r.in.Rollout.Generation == r.rec.Generation && r.in.Rollout.Most == r.rec.Most
	for i, g := range r.spec.Update.Gates {
		all[i].Name = cmp.Or(g.Name, fmt.Sprintf("%d", i+1))
		if i < len(r.in.Gates) && seen {
			all[i] = r.in.Gates[i]
			all[i].Name = cmp.Or(all[i].Name, g.Name)
		}
	}
	return all
}

// firstEver reports whether the version is the service's first: gates have nothing to protect, and often nothing to
// measure yet.
func (r *rollout) firstEver() bool {
	return r.rec.Healthy == nil && len(r.rec.History) == 0 && len(r.old) == 0
}

// failedGate returns the gate that made the rollout fail, or nil.
func (r *rollout) failedGate() *cluster.GateResult {
	for i, g := range r.gates() {
		if g.Failures >= cmp.Or(r.spec.Update.Gates[i].Failures, cluster.DefaultGateFailures) {
			return &g
		}
	}
	return nil
}

// missingGates names the gates that have not passed often enough, as a text.
func (r *rollout) missingGates() string {
	var names []string
	for i, g := range r.gates() {
		if g.Passes < max(1, r.spec.Update.Gates[i].Passes) {
			names = append(names, g.Name+because(g.Message))
		}
	}
	return strings.Join(names, "; ")
}

func (r *rollout) gatesPassed() bool { return r.missingGates() == "" }

// gatesSatisfied reports whether the gates passed with all tasks of the version healthy, or do not apply. They do not
// apply to a version that was healthy before, nor to one that was promoted with as many canaries as tasks.
func (r *rollout) gatesSatisfied() bool {
	if len(r.spec.Update.Gates) == 0 || r.wasHealthyBefore() || r.firstEver() || r.rec.Promoted &&
		r.limits.Canaries >= r.n {
		return true
	}
	return r.healthy >= r.n && r.rec.Most > 0 && r.gatesPassed()
}

// keptForGates returns how many old tasks stay until the gates have passed for the last batch, so that a rollback finds
// old tasks. The surge limits the number.
func (r *rollout) keptForGates() int {
	if r.gatesSatisfied() || r.nothingToPreserve() {
		return 0
	}
	return min(r.limits.Parallelism, r.limits.Surge)
}

func (r *rollout) andGates() string {
	if len(r.spec.Update.Gates) == 0 {
		return ""
	}
	return ", all gates passed"
}

// batchMayBegin reports whether the next tasks may begin: all begun tasks are healthy, the stagger has passed, and the
// gates passed. Without gates and stagger, tasks begin one by one as others become healthy.
func (r *rollout) batchMayBegin() bool {
	if r.spec.Update.Stagger == 0 && len(r.spec.Update.Gates) == 0 {
		return true
	}
	if r.starting() > 0 || !r.gatesPassed() {
		return false
	}
	at := r.staggerEnd()
	if at.After(r.now) {
		r.decideAgainAt(at)
		return false
	}
	return true
}

// batchMayGrow reports whether the present batch may still grow: none of its starting tasks began before the last
// progress.
func (r *rollout) batchMayGrow() bool {
	if r.starting() == 0 {
		return false
	}
	for _, s := range r.fresh {
		if s.begun() == 1 && !s.healthy() && s.placed().Before(r.rec.Changed) {
			return false
		}
	}
	return true
}

// staggerEnd returns the time from which the stagger lets the next tasks begin.
func (r *rollout) staggerEnd() time.Time {
	for _, s := range r.fresh {
		if t := s.newest(); t != nil && t.Desired != nil && !t.Desired.Placed.Before(r.rec.Started) {
			return r.rec.Changed.Add(time.Duration(r.spec.Update.Stagger))
		}
	}
	return time.Time{} // nothing was begun for this rollout yet
}

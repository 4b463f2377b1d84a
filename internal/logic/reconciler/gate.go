package reconciler

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// gates returns the results of the gates that the rollout has to pass: none before anything of it is healthy, none on
// the way to a version that was healthy before, and none of a service's first version.
func (r *rollout) gates() []cluster.GateResult {
	if r.rec.Most == 0 || r.known() || r.firstEver() {
		return nil
	}
	all := make([]cluster.GateResult, len(r.spec.Update.Gates))
	// what was seen is of the tasks that are healthy now
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

// firstEver reports whether the version is the service's first: there is nothing that gates could protect, and often
// nothing yet for them to look at.
func (r *rollout) firstEver() bool {
	return r.rec.Healthy == nil && len(r.rec.History) == 0 && len(r.old) == 0
}

// failedGate returns the gate by which the rollout has failed, or nil.
func (r *rollout) failedGate() *cluster.GateResult {
	for i, g := range r.gates() {
		if g.Failures >= cmp.Or(r.spec.Update.Gates[i].Failures, cluster.DefaultGateFailures) {
			return &g
		}
	}
	return nil
}

// closed returns the gates that have not passed so often as they must, as a text.
func (r *rollout) closed() string {
	var names []string
	for i, g := range r.gates() {
		if g.Passes < max(1, r.spec.Update.Gates[i].Passes) {
			names = append(names, g.Name+because(g.Message))
		}
	}
	return strings.Join(names, "; ")
}

func (r *rollout) passes() bool { return r.closed() == "" }

// judged reports whether the gates passed with all tasks of the version healthy, or have nothing to say: they do not
// look at a version that was healthy before, and have judged one that was promoted with as many canaries as there are
// tasks.
func (r *rollout) judged() bool {
	if len(r.spec.Update.Gates) == 0 || r.known() || r.firstEver() || r.rec.Promoted && r.limits.Canaries >= r.n {
		return true
	}
	return r.healthy >= r.n && r.rec.Most > 0 && r.passes()
}

// witnesses is how many old tasks stay until the gates have judged the last batch, as far as there is room for tasks
// beyond the count: so that there is something to go back to.
func (r *rollout) witnesses() int {
	if r.judged() || r.lost() {
		return 0
	}
	return min(r.limits.Parallelism, r.limits.Surge)
}

func (r *rollout) andGates() string {
	if len(r.spec.Update.Gates) == 0 {
		return ""
	}
	return " and all gates passed"
}

// goesOn reports whether the next tasks may be begun: all that were begun are healthy, for long enough, and the gates
// passed. Where there is nothing to wait for, tasks are begun one by one as others become healthy.
func (r *rollout) goesOn() bool {
	if r.spec.Update.Stagger == 0 && len(r.spec.Update.Gates) == 0 {
		return true
	}
	if r.waiting() > 0 || !r.passes() {
		return false
	}
	at := r.rested()
	if at.After(r.now) {
		r.look(at)
		return false
	}
	return true
}

// filling reports whether the present batch may still grow: none of those on their way was begun before the last
// progress.
func (r *rollout) filling() bool {
	if r.waiting() == 0 {
		return false
	}
	for _, s := range r.fresh {
		if s.begun() == 1 && !s.healthy() && s.placed().Before(r.rec.Changed) {
			return false
		}
	}
	return true
}

// rested returns when the next tasks may be begun as far as the time between them goes.
func (r *rollout) rested() time.Time {
	for _, s := range r.fresh {
		if t := s.newest(); t != nil && t.Desired != nil && !t.Desired.Placed.Before(r.rec.Started) {
			return r.rec.Changed.Add(time.Duration(r.spec.Update.Stagger))
		}
	}
	return time.Time{} // nothing was begun for this rollout yet
}

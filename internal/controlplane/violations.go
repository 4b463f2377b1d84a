package controlplane

import (
	"maps"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/queue"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// recheckSet says whose attempts are to be checked for violations: all attempts, or those of some nodes and owners.
type recheckSet struct {
	all    bool
	nodes  map[string]bool
	owners map[cluster.OwnerRef]bool
}

// newRecheckSet returns an empty set.
func newRecheckSet() *recheckSet {
	return &recheckSet{nodes: map[string]bool{}, owners: map[cluster.OwnerRef]bool{}}
}

func (s *recheckSet) clear() {
	s.all = false
	clear(s.nodes)
	clear(s.owners)
}

// addNodes adds the nodes of another set, or all attempts if the other one has all.
func (s *recheckSet) addNodes(other *recheckSet) {
	s.all = s.all || other.all
	maps.Copy(s.nodes, other.nodes)
}

// violations holds the attempts that are to leave their nodes because of a taint, or because a demand is not met any
// more (see observe.Violation). Violations are searched when something changes, and not for each decision. All
// attempts are checked at the start of a term and now and then as a safeguard. Otherwise only those of changed nodes
// and specs are.
type violations struct {
	known map[store.AttemptKey]*reconciler.Leave
	view  *fleetView
	queue *queue.Owners
}

func newViolations(view *fleetView, queue *queue.Owners) *violations {
	return &violations{known: map[store.AttemptKey]*reconciler.Leave{}, view: view, queue: queue}
}

// leaveReason returns why an attempt is to leave its node because of a violation, or nil.
func (v *violations) leaveReason(row *store.AttemptRow) *reconciler.Leave {
	if len(v.known) == 0 || !row.Standing() {
		return nil
	}
	return v.known[store.AttemptKey{Task: row.Task, Number: row.Number}]
}

// update brings the violations of some attempts to the snapshot and the fleet. Owners with a new or a former violation
// are marked.
func (v *violations) update(snap *store.Snapshot, which *recheckSet, now time.Time) {
	finder := violationFinder{violations: v, snap: snap, now: now}
	if which.all {
		for row := range snap.AllAttempts() {
			finder.check(row)
		}
		for key := range v.known { // order-free: each by itself
			if _, ok := snap.Attempt(key.Task, key.Number); !ok {
				delete(v.known, key)
			}
		}
		return
	}
	for name := range which.nodes { // order-free: each attempt is checked by itself
		for row := range snap.NodeAttempts(name) {
			finder.check(row)
		}
	}
	for o := range which.owners { // order-free: the same
		for row := range snap.Attempts(o) {
			finder.check(row)
		}
	}
}

// violationFinder checks attempts for violations. It caches the rules of the last owner, as the attempts of an owner
// are adjacent.
type violationFinder struct {
	violations *violations
	snap       *store.Snapshot
	now        time.Time
	ref        cluster.OwnerRef
	step       string
	last       *reconciler.PlacedTask
}

func (f *violationFinder) check(row *store.AttemptRow) {
	v, key := f.violations, store.AttemptKey{Task: row.Task, Number: row.Number}
	was, now := v.known[key], f.find(row)
	switch {
	case now == nil && was == nil:
		return
	case now == nil:
		delete(v.known, key)
	case now.Since.IsZero() && was != nil && was.Reason == now.Reason && was.Message == now.Message:
		now.Since = was.Since
		v.known[key] = now
	default:
		if now.Since.IsZero() {
			now.Since = f.now
		}
		v.known[key] = now
	}
	if was == nil || now == nil || *was != *now {
		if o, ok := row.Ref(); ok {
			v.queue.Mark(o)
		}
	}
}

// find returns why an attempt is to leave its node because of a violation, or nil.
func (f *violationFinder) find(row *store.AttemptRow) *reconciler.Leave {
	o, ok := row.Ref()
	if !ok || !row.Standing() {
		return nil
	}
	t := f.rulesOf(o, row.Task)
	n, _, onNode := f.violations.view.fleet.Node(row.Node)
	if t == nil || !onNode {
		return nil
	}
	var labels cluster.Labels
	if len(n.Reserved) > 0 {
		labels = f.violations.view.policies.of(f.snap, o).Labels
	}
	why, leaves := observe.Violation(t, o, labels, &n, f.now)
	if !leaves {
		return nil
	}
	return why
}

// rulesOf returns the rules by which a task may stay where it is, see observe.PlacedTask.
func (f *violationFinder) rulesOf(o cluster.OwnerRef, task cluster.TaskID) *reconciler.PlacedTask {
	step := ""
	if o.Kind == cluster.KindJob {
		parts, _ := task.Parts()
		step = parts.Step
	}
	if f.ref == o && f.step == step {
		return f.last
	}
	f.ref, f.step, f.last = o, step, observe.PlacedTask(f.snap, o, step)
	return f.last
}

package fleetview

import (
	"maps"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/queue"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// RecheckSet says whose attempts are to be checked for violations: all attempts, or those of some nodes and owners.
type RecheckSet struct {
	all    bool
	nodes  map[string]bool
	owners map[cluster.OwnerRef]bool
}

// NewRecheckSet returns an empty set.
func NewRecheckSet() *RecheckSet {
	return &RecheckSet{nodes: map[string]bool{}, owners: map[cluster.OwnerRef]bool{}}
}

// Clear empties the set.
func (s *RecheckSet) Clear() {
	s.all = false
	clear(s.nodes)
	clear(s.owners)
}

// AddNodes adds the nodes of another set, or all attempts if the other one has all.
func (s *RecheckSet) AddNodes(other *RecheckSet) {
	s.all = s.all || other.all
	maps.Copy(s.nodes, other.nodes)
}

// Violations holds the attempts that are to leave their nodes because of a taint, or because a demand is not met any
// more (see observe.Violation). Violations are searched when something changes, and not for each decision. All
// attempts are checked at the start of a term and now and then as a safeguard. Otherwise only those of changed nodes
// and specs are.
type Violations struct {
	known map[store.AttemptKey]*reconciler.Leave
	view  *View
	queue *queue.Owners
}

// NewViolations returns an empty set of violations, which marks owners in the queue.
func NewViolations(view *View, queue *queue.Owners) *Violations {
	return &Violations{known: map[store.AttemptKey]*reconciler.Leave{}, view: view, queue: queue}
}

// LeaveReason returns why an attempt is to leave its node because of a violation, or nil.
func (v *Violations) LeaveReason(row *store.AttemptRow) *reconciler.Leave {
	if len(v.known) == 0 || !row.Standing() {
		return nil
	}
	return v.known[store.AttemptKey{Task: row.Task, Number: row.Number}]
}

// Update brings the violations of some attempts to the snapshot and the fleet. Owners with a new or a former violation
// are marked.
func (v *Violations) Update(snap *store.Snapshot, which *RecheckSet, now time.Time) {
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
	violations *Violations
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
	n, _, onNode := f.violations.view.Fleet.Node(row.Node)
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

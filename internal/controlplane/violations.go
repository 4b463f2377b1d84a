package controlplane

import (
	"maps"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// violations holds the attempts that are to leave their nodes because of a taint, or because a demand is not met any
// more (see observe.Violation). Violations are searched when something changes, and not for each decision. All
// attempts are checked at the start of a term and now and then as a safeguard. Otherwise only those of changed nodes
// and specs are.
type violations struct {
	known map[store.AttemptKey]*reconciler.Leave
	// all, nodes and owners say whose attempts are to be checked.
	all    bool
	nodes  map[string]bool
	owners map[cluster.OwnerRef]bool
}

func newViolations() violations {
	return violations{
		known: map[store.AttemptKey]*reconciler.Leave{}, all: true, nodes: map[string]bool{},
		owners: map[cluster.OwnerRef]bool{},
	}
}

func (v *violations) get(row *store.AttemptRow) *reconciler.Leave {
	if len(v.known) == 0 || !row.Standing() {
		return nil
	}
	return v.known[store.AttemptKey{Task: row.Task, Number: row.Number}]
}

// updateViolations brings the violations to the snapshot and the fleet. Owners with a new or a former violation are to
// be decided for.
func (l *loop) updateViolations(snap *store.Snapshot) {
	v := &l.violations
	finder := violationFinder{loop: l, snap: snap}
	if v.all {
		for row := range snap.AllAttempts() {
			finder.check(row)
		}
		for key := range v.known { // order-free: each by itself
			if _, ok := snap.Attempt(key.Task, key.Number); !ok {
				delete(v.known, key)
			}
		}
	} else {
		for name := range v.nodes { // order-free: each attempt is checked by itself
			for row := range snap.NodeAttempts(name) {
				finder.check(row)
			}
		}
		for o := range v.owners { // order-free: the same
			for row := range snap.Attempts(o) {
				finder.check(row)
			}
		}
	}
	if plan := l.inFlight; plan != nil {
		plan.checkedAll = plan.checkedAll || v.all
		maps.Copy(plan.checkedNodes, v.nodes)
	}
	v.all = false
	clear(v.nodes)
	clear(v.owners)
}

// violationFinder checks attempts for violations. It caches the rules of the last owner, as the attempts of an owner
// are adjacent.
type violationFinder struct {
	loop *loop
	snap *store.Snapshot
	ref  cluster.OwnerRef
	step string
	last *reconciler.PlacedTask
}

func (f *violationFinder) check(row *store.AttemptRow) {
	v, key := &f.loop.violations, store.AttemptKey{Task: row.Task, Number: row.Number}
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
			now.Since = f.loop.now
		}
		v.known[key] = now
	}
	if was == nil || now == nil || *was != *now {
		if o, ok := row.Ref(); ok {
			f.loop.queue.mark(o)
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
	n, _, onNode := f.loop.fleet.Node(row.Node)
	if t == nil || !onNode {
		return nil
	}
	var labels cluster.Labels
	if len(n.Reserved) > 0 {
		labels = f.loop.policyOf(f.snap, o).Labels
	}
	why, leaves := observe.Violation(t, o, labels, &n, f.loop.now)
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

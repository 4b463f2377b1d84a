package controlplane

import (
	"cmp"
	"maps"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// leaveOf says why an attempt is to leave its node, though that is itself well, or nil. The first reason counts: what
// the node cannot bear any longer goes before what others need, that before where the attempt may not be, and all
// before what is merely better.
func (l *loop) leaveOf(_ *store.Snapshot, row *store.AttemptRow) *reconciler.Leave {
	if p := l.watch.pressure(row); p != nil {
		return reconciler.PressedLeave(row.Node, p)
	}
	return cmp.Or(l.preempting.of(row), l.misfits.of(row), l.rebalancing.of(row))
}

// misfits are the attempts that are to leave their nodes for what these are now: a taint, or a demand of the owner that
// is not met any more (see reconciler.Misfit). They are found when something changes, and not for each decision anew:
// all at the begin of a reign and now and then for good measure, else those of nodes that show another face and of
// owners whose specs were written.
type misfits struct {
	known map[store.AttemptKey]*reconciler.Leave
	// all, nodes and owners say whose attempts are to be looked at.
	all    bool
	nodes  map[string]bool
	owners map[cluster.OwnerRef]bool
}

func newMisfits() misfits {
	return misfits{
		known: map[store.AttemptKey]*reconciler.Leave{}, all: true, nodes: map[string]bool{},
		owners: map[cluster.OwnerRef]bool{},
	}
}

func (m *misfits) of(row *store.AttemptRow) *reconciler.Leave {
	if len(m.known) == 0 {
		return nil
	}
	return m.known[store.AttemptKey{Task: row.Task, Number: row.Number}]
}

// fit brings the misfits to the snapshot and the nodes' faces. Owners of which one came or went are to be decided for.
func (l *loop) fit(snap *store.Snapshot) {
	m := &l.misfits
	f := fitter{loop: l, snap: snap}
	if m.all {
		for row := range snap.AllAttempts() {
			f.look(row)
		}
		for key := range m.known { // order-free: each by itself
			if _, ok := snap.Attempt(key.Task, key.Number); !ok {
				delete(m.known, key)
			}
		}
	} else {
		for name := range m.nodes { // order-free: each attempt is looked at by itself
			for row := range snap.NodeAttempts(name) {
				f.look(row)
			}
		}
		for o := range m.owners { // order-free: the same
			for row := range snap.Attempts(o) {
				f.look(row)
			}
		}
	}
	if flight := l.flight; flight != nil {
		flight.all = flight.all || m.all
		maps.Copy(flight.nodes, m.nodes)
	}
	m.all = false
	clear(m.nodes)
	clear(m.owners)
}

// fitter looks whether attempts fit their nodes. What it found out about the last owner is kept, as the attempts of one
// stand together.
type fitter struct {
	loop *loop
	snap *store.Snapshot
	ref  cluster.OwnerRef
	step string
	last *reconciler.Standing
}

func (f *fitter) look(row *store.AttemptRow) {
	m, key := &f.loop.misfits, store.AttemptKey{Task: row.Task, Number: row.Number}
	was, now := m.known[key], f.misfit(row)
	switch {
	case now == nil && was == nil:
		return
	case now == nil:
		delete(m.known, key)
	case now.Since.IsZero() && was != nil && was.Reason == now.Reason && was.Message == now.Message:
		now.Since = was.Since
		m.known[key] = now
	default:
		if now.Since.IsZero() {
			now.Since = f.loop.now
		}
		m.known[key] = now
	}
	if was == nil || now == nil || *was != *now {
		if o, ok := row.Ref(); ok {
			f.loop.dirty[o] = true
		}
	}
}

// misfit says why an attempt is to leave its node for what that is now, or nil.
func (f *fitter) misfit(row *store.AttemptRow) *reconciler.Leave {
	o, ok := row.Ref()
	if !ok || !row.Standing() {
		return nil
	}
	t := f.standing(o, row.Task)
	if t == nil {
		return nil
	}
	if why := f.reserved(o, t, row.Node); why != nil {
		return why
	}
	n, _, ok := f.loop.fleet.Node(row.Node)
	if !ok || len(n.Taints) == 0 && len(t.Placement.Constraints) == 0 && len(t.Common) == 0 && t.Placement.Pool == "" {
		return nil
	}
	why, leaves := reconciler.Misfit(*t, &n)
	if !leaves {
		return nil
	}
	return why
}

// standing is what an owner's spec demands for a task; nil where there is none, or its tasks leave by its own decision
// alone, as a daemon's do.
func (f *fitter) standing(o cluster.OwnerRef, task cluster.TaskID) *reconciler.Standing {
	step := ""
	if o.Kind == cluster.KindJob {
		parts, _ := task.Parts()
		step = parts.Step
	}
	if f.ref == o && f.step == step {
		return f.last
	}
	f.ref, f.step, f.last = o, step, standingOf(f.snap, o, step)
	return f.last
}

func standingOf(snap *store.Snapshot, o cluster.OwnerRef, step string) *reconciler.Standing {
	var t reconciler.Standing
	if c, ok := snap.Cluster(o.Cluster); ok {
		t.Common = c.Value.Constraints
	}
	if o.Kind == cluster.KindJob {
		e, ok := snap.Job(o.Cluster, o.Name)
		if !ok || e.Value.Step(step) == nil {
			return nil
		}
		t.Placement, t.Job = &e.Value.Step(step).Placement, true
		return &t
	}
	e, ok := snap.Service(o.Cluster, o.Name)
	if !ok || e.Value.Mode == cluster.ModeDaemon {
		return nil
	}
	t.Placement, t.OnViolation = &e.Value.Placement, e.Value.OnViolation
	return &t
}

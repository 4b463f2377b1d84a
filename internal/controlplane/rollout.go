package controlplane

import (
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// serviceInput gathers what a decision about a service looks at besides its tasks.
func (l *loop) serviceInput(snap *store.Snapshot, o cluster.OwnerRef,
	in reconciler.ServiceInput,
) reconciler.ServiceInput {
	e, ok := snap.Wanted(o.Cluster, o.Name)
	if ok {
		in.Spec, in.SpecRev = e.Value, e.Modified
		if e.Value.Mode == cluster.ModeDaemon {
			in.SetNodes(l.daemonNodes)
		}
	}
	if r, ok := snap.Rollout(o.Cluster, o.Name); ok {
		in.Rollout, in.RolloutRev = r.Value, r.Modified
	}
	in.Since = l.since
	in.Gates = l.gates.of(o, in.Spec, in.Rollout)
	return in
}

// rollout writes where a service's newest version stands, and with it, where that failed, the version that is taken up
// again: one without the other would leave a failed version that nobody takes back, or one that is taken back twice.
func (w *write) rollout(d *reconciler.Decision, units *[]store.Unit) error {
	if d.Rollout == nil {
		return nil
	}
	var u store.Unit
	u.Compare(w.prefix().Service(w.owner.Cluster, w.owner.Name), d.Rollout.SpecRev)
	key := w.prefix().Rollout(w.owner.Cluster, w.owner.Name)
	u.Compare(key, d.Rollout.Rev)
	if d.Revert != nil {
		if err := w.revert(&u, d.Revert, d.Rollout.Record.Healthy); err != nil {
			return err
		}
	}
	if err := u.Put(key, &d.Rollout.Record); err != nil {
		return err
	}
	u.Events = append(u.Events, d.Rollout.Events...)
	*units = append(*units, u)
	return nil
}

// revert writes the spec as the user wrote it, with an earlier definition, under the next generation. The tasks that
// still run that definition are of the newest version then, also where the version that failed was to begin all of them
// anew.
func (w *write) revert(u *store.Unit, r *reconciler.Revert, healthy *cluster.Version) error {
	e, ok := w.snap.Service(w.owner.Cluster, w.owner.Name)
	if !ok {
		return nil // and the unit is refused: it compares the spec
	}
	spec := *e.Value
	spec.Definition = r.Definition
	spec.Generation = w.snap.NextGeneration(w.owner)
	spec.Updated = w.loop.now.UTC()
	spec.Rollout.Reverted = r.Failed
	if healthy != nil {
		spec.Restarted = min(spec.Restarted, healthy.Generation)
	}
	definition, _ := w.snap.Definition(r.Definition)
	u.Compare(w.prefix().Definition(r.Definition), definition.Modified)
	return u.Put(w.prefix().Service(w.owner.Cluster, w.owner.Name), &spec)
}

// bereave deletes what the control plane keeps beside a service, with the service or where that is gone.
func (w *write) bereave(u *store.Unit) {
	if w.owner.Kind != cluster.KindService {
		return
	}
	if e, ok := w.snap.Rollout(w.owner.Cluster, w.owner.Name); ok {
		key := w.prefix().Rollout(w.owner.Cluster, w.owner.Name)
		u.Compare(key, e.Modified)
		u.Delete(key)
	}
	if e, ok := w.snap.Scale(w.owner.Cluster, w.owner.Name); ok {
		key := w.prefix().Scale(w.owner.Cluster, w.owner.Name)
		u.Compare(key, e.Modified)
		u.Delete(key)
	}
}

// orphan deletes what is left of a service whose record went some other way than by a decision.
func (w *write) orphan(units *[]store.Unit) {
	if w.owner.Kind != cluster.KindService {
		return
	}
	if _, ok := w.snap.Service(w.owner.Cluster, w.owner.Name); ok {
		return
	}
	var u store.Unit
	u.Compare(w.prefix().Owner(w.owner), 0)
	if w.bereave(&u); len(u.Ops) > 0 {
		*units = append(*units, u)
	}
}

// dirtyBereaved marks the services of which only such records may be left.
func (l *loop) dirtyBereaved(snap *store.Snapshot) {
	mark := func(key, noun string) {
		rest := strings.TrimPrefix(key, string(l.config.Tables.Prefix())+noun+"/")
		inCluster, name, ok := strings.Cut(rest, "/")
		if _, stands := snap.Service(inCluster, name); ok && !stands {
			l.dirty[cluster.OwnerRef{Kind: cluster.KindService, Cluster: inCluster, Name: name}] = true
		}
	}
	for e := range snap.Rollouts() {
		mark(e.Key, "rollout")
	}
	for e := range snap.Scales() {
		mark(e.Key, "scale")
	}
}

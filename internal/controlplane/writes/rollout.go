package writes

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// writeRollout writes the state of a service's newest version. If that version failed, the unit also writes the spec
// with the earlier version. One without the other would leave a failed version in place, or revert it twice.
func (w *decisionWriter) writeRollout(d *reconciler.Decision, units *[]store.Unit) error {
	if d.Rollout == nil {
		return nil
	}
	var u store.Unit
	u.Compare(w.Prefix.Service(w.owner.Cluster, w.owner.Name), d.Rollout.SpecRev)
	key := w.Prefix.Rollout(w.owner.Cluster, w.owner.Name)
	u.Compare(key, d.Rollout.Rev)
	if d.Revert != nil {
		if err := w.revertSpec(&u, d.Revert, d.Rollout.Record.Healthy); err != nil {
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

// revertSpec writes the user's spec with an earlier definition under the next generation. Tasks that still run that
// definition then belong to the newest version, even if the failed version was to restart all of them.
func (w *decisionWriter) revertSpec(u *store.Unit, r *reconciler.Revert, healthy *cluster.Version) error {
	e, ok := w.Snap.Service(w.owner.Cluster, w.owner.Name)
	if !ok {
		return nil // the unit is refused, as it compares the spec
	}
	spec := *e.Value
	spec.Definition = r.Definition
	spec.Generation = w.Snap.NextGeneration(w.owner)
	spec.Updated = w.Now.UTC()
	spec.Rollout.Reverted = r.Failed
	if healthy != nil {
		spec.Restarted = min(spec.Restarted, healthy.Generation)
	}
	definition, _ := w.Snap.Definition(r.Definition)
	u.Compare(w.Prefix.Definition(r.Definition), definition.Modified)
	if c, ok := w.Snap.Cluster(w.owner.Cluster); ok { // its permissions
		u.Compare(w.Prefix.Cluster(w.owner.Cluster), c.Modified)
	}
	return u.Put(w.Prefix.Service(w.owner.Cluster, w.owner.Name), &spec)
}

// deleteSideRecords deletes the records that the control plane keeps in addition to a service.
func (w *decisionWriter) deleteSideRecords(u *store.Unit) {
	if w.owner.Kind != cluster.KindService {
		return
	}
	if e, ok := w.Snap.Rollout(w.owner.Cluster, w.owner.Name); ok {
		key := w.Prefix.Rollout(w.owner.Cluster, w.owner.Name)
		u.Compare(key, e.Modified)
		u.Delete(key)
	}
	if e, ok := w.Snap.Scale(w.owner.Cluster, w.owner.Name); ok {
		key := w.Prefix.Scale(w.owner.Cluster, w.owner.Name)
		u.Compare(key, e.Modified)
		u.Delete(key)
	}
}

// deleteOrphans deletes the side records of a service whose own record was deleted by a foreign writer.
func (w *decisionWriter) deleteOrphans(units *[]store.Unit) {
	if w.owner.Kind != cluster.KindService {
		return
	}
	if _, ok := w.Snap.Service(w.owner.Cluster, w.owner.Name); ok {
		return
	}
	var u store.Unit
	u.Compare(w.Prefix.Owner(w.owner), 0)
	if w.deleteSideRecords(&u); len(u.Ops) > 0 {
		*units = append(*units, u)
	}
}

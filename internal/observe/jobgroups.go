package observe

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// SetJobGroup notes in a fleet whether a job has its place in its concurrency group, by its records. It reports whether
// that is a change.
func SetJobGroup(f *scheduler.Fleet, snap *store.Snapshot, domain string, o cluster.OwnerRef) (changed bool) {
	group, generation := "", uint64(0)
	if e, ok := snap.Job(o.Cluster, o.Name); ok && e.Value.Concurrency != nil && isIn(snap, domain, o.Cluster) {
		in := reconciler.JobInput{Owner: o, Spec: e.Value, Packed: Packed(snap, o)}
		for row := range snap.Attempts(o) {
			if !row.IsForeign() {
				in.Tasks = append(in.Tasks, reconciler.Task{Attempt: row.Attempt})
			}
		}
		if reconciler.IsUnderWay(in) {
			group, generation = e.Value.Concurrency.Group, e.Value.Generation
		}
	}
	return f.Limits.SetBegun(o.Cluster, o.Name, generation, group)
}

// SetJobGroups is SetJobGroup for all jobs whose names the filter accepts.
func SetJobGroups(f *scheduler.Fleet, snap *store.Snapshot, domain string,
	in func(name string) bool,
) (changed bool) {
	changed = f.Limits.RetainBegun(func(inCluster, job string) bool {
		e, ok := snap.Job(inCluster, job)
		return ok && e.Value.Concurrency != nil || !in(job)
	})
	for e := range snap.Jobs("") {
		if e.Value.Concurrency != nil && in(e.Value.Name) {
			changed = SetJobGroup(f, snap, domain, e.Value.Owner()) || changed
		}
	}
	return changed
}

// isIn reports whether the tasks of a cluster are placed in a domain.
func isIn(snap *store.Snapshot, domain, name string) bool {
	c, _ := snap.Cluster(name)
	return c.Value.InDomain() == domain
}

package snapshot

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// VersionsOf returns the versions of a service in its records, the newest first.
func VersionsOf(snap *store.Snapshot, svc *cluster.Service) []cluster.Version {
	var all []cluster.Version
	add := func(v cluster.Version) {
		if !slices.ContainsFunc(all, func(known cluster.Version) bool { return known.Generation == v.Generation }) {
			all = append(all, v)
		}
	}
	e, ok := snap.Rollout(svc.Cluster, svc.Name)
	if !ok || e.Value.Generation != svc.Generation {
		message := "the control plane has not started it yet"
		if !ok && len(svc.Needs) > 0 {
			message = "it begins once the needs of the service are met: " + strings.Join(svc.Needs, ", ")
		}
		add(cluster.Version{
			Generation: svc.Generation, Definition: svc.Definition, State: cluster.RolloutRolling, Started: svc.Updated,
			Message: message,
		})
	}
	if ok {
		add(e.Value.Version)
		for _, v := range e.Value.History {
			add(v)
		}
		if e.Value.Healthy != nil {
			add(*e.Value.Healthy)
		}
	}
	slices.SortStableFunc(all, func(a, b cluster.Version) int { return -cmp.Compare(a.Generation, b.Generation) })
	return all
}

// Owners yields the services and jobs of a cluster, or of all clusters with "".
func Owners(snap *store.Snapshot, in string) iter.Seq[cluster.OwnerRef] {
	return func(yield func(cluster.OwnerRef) bool) {
		for e := range snap.Services(in) {
			if !yield(e.Value.Owner()) {
				return
			}
		}
		for e := range snap.Jobs(in) {
			if !yield(e.Value.Owner()) {
				return
			}
		}
	}
}

// Definitions yields the services, jobs and crons of a cluster, or of all clusters with "", each with the definitions
// that its spec names.
func Definitions(snap *store.Snapshot, in string) iter.Seq2[cluster.OwnerRef, cluster.Ref] {
	return func(yield func(cluster.OwnerRef, cluster.Ref) bool) {
		for e := range snap.Services(in) {
			if !yield(e.Value.Owner(), e.Value.Definition) {
				return
			}
		}
		for e := range snap.Jobs(in) {
			if !yieldSteps(e.Value.Owner(), e.Value.Steps, yield) {
				return
			}
		}
		for e := range snap.Crons(in) {
			o := cluster.OwnerRef{Kind: cluster.KindCron, Cluster: e.Value.Cluster, Name: e.Value.Name}
			if !yieldSteps(o, e.Value.Job.Steps, yield) {
				return
			}
		}
	}
}

func yieldSteps(o cluster.OwnerRef, steps []cluster.Step, yield func(cluster.OwnerRef, cluster.Ref) bool) bool {
	for i := range steps {
		if !yield(o, steps[i].Definition) {
			return false
		}
	}
	return true
}

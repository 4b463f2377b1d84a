package controlplane

import (
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// reservation returns what an attempt with the desired record d takes up on its node, and what other tasks need to know
// of it.
func (l *loop) reservation(snap *store.Snapshot, row *store.AttemptRow, d *cluster.Desired) scheduler.Reservation {
	var policy observe.OwnerPolicy
	if o, ok := row.Ref(); ok {
		policy = l.policyOf(snap, o)
	}
	return observe.Reservation(row, d, l.demand(snap, d.Definition), &policy)
}

// policyOf returns the policy of an owner; an empty one for an owner that does not exist. It is read once for each
// write of the spec.
func (l *loop) policyOf(snap *store.Snapshot, o cluster.OwnerRef) observe.OwnerPolicy {
	revision, ok := observe.PolicyRevision(snap, o)
	if !ok {
		delete(l.policies, o)
		return observe.OwnerPolicy{}
	}
	policy, ok := l.policies[o]
	if !ok || policy.Revision != revision {
		policy = observe.PolicyOf(snap, o)
		l.policies[o] = policy
	}
	return policy
}

// updateCharges updates the reservations of an owner's tasks if its spec was written.
func (l *loop) updateCharges(snap *store.Snapshot, o cluster.OwnerRef) {
	was, had := l.policies[o]
	if !had {
		return
	}
	now := l.policyOf(snap, o)
	if now.Revision != was.Revision {
		l.violations.owners[o] = true
	}
	if now.Revision == was.Revision || maps.Equal(was.Labels, now.Labels) &&
		maps.EqualFunc(was.Away, now.Away, func(a, b []cluster.Relation) bool {
			return slices.EqualFunc(a, b, cluster.Relation.Equal)
		}) {
		return
	}
	for row := range snap.Attempts(o) {
		held, ok := l.charged[store.AttemptKey{Task: row.Task, Number: row.Number}]
		if !ok {
			continue
		}
		if d := observe.Occupant(snap, row); d != nil && chargeOf(row, d) == held {
			l.fleet.Reserve(l.reservation(snap, row, d))
			l.fleetChanged = true
		}
	}
}

// demand returns what a task of the definition takes up. It caches the last answer, as adjacent tasks often share a
// definition.
func (l *loop) demand(snap *store.Snapshot, r cluster.Ref) cluster.Demand {
	if l.demandCache.snap == snap && l.demandCache.ref == r {
		return l.demandCache.demand
	}
	l.demandCache = demandCache{snap: snap, ref: r}
	if def, ok := snap.Definition(r); ok {
		l.demandCache.demand = def.Value.Demand()
	}
	return l.demandCache.demand
}

// demandCache is the last answer of loop.demand.
type demandCache struct {
	snap   *store.Snapshot
	ref    cluster.Ref
	demand cluster.Demand
}

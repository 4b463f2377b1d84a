package controlplane

import (
	"maps"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// reservation returns what an attempt with the desired record d takes up on its node, and what other tasks need to know
// of it.
func (l *loop) reservation(snap *store.Snapshot, row *store.AttemptRow, d *cluster.Desired) scheduler.Reservation {
	r := scheduler.Reservation{
		UUID: d.UUID, Task: row.Task, Node: row.Node, Demand: l.demand(snap, d.Definition), Definition: d.Definition,
		Priority: d.Priority, Devices: d.Devices,
	}
	for _, port := range d.Ports { // order-free: a set
		r.Ports = append(r.Ports, port)
	}
	if o, ok := row.Ref(); ok {
		policy := l.policyOf(snap, o)
		r.Labels = policy.labels
		parts, _ := row.Task.Parts()
		r.Away = policy.away[parts.Step]
	}
	return r
}

// ownerPolicy is the part of an owner's spec that concerns the tasks of others: its labels and, by step ("" for a
// service), the tasks that its own must be kept away from.
type ownerPolicy struct {
	rev    uint64 // revision of the spec
	labels cluster.Labels
	away   map[string][]cluster.Relation
}

// policyOf returns the policy of an owner; an empty one for an owner that does not exist. It is read once for each
// write of the spec.
func (l *loop) policyOf(snap *store.Snapshot, o cluster.OwnerRef) ownerPolicy {
	if o.Kind == cluster.KindJob {
		e, ok := snap.Job(o.Cluster, o.Name)
		return l.cachedPolicy(o, ok, e.Modified, func() ownerPolicy {
			policy := ownerPolicy{labels: e.Value.Labels, away: map[string][]cluster.Relation{}}
			for i := range e.Value.Steps {
				policy.away[e.Value.Steps[i].Name] = e.Value.Steps[i].Placement.KeepsAway()
			}
			return policy
		})
	}
	e, ok := snap.Service(o.Cluster, o.Name)
	return l.cachedPolicy(o, ok, e.Modified, func() ownerPolicy {
		return ownerPolicy{
			labels: e.Value.Labels,
			away:   map[string][]cluster.Relation{"": e.Value.Placement.KeepsAway()},
		}
	})
}

// cachedPolicy returns the policy of an owner as it was last read, and reads it again if its spec was written since.
func (l *loop) cachedPolicy(o cluster.OwnerRef, there bool, rev uint64, read func() ownerPolicy) ownerPolicy {
	if !there {
		delete(l.policies, o)
		return ownerPolicy{}
	}
	policy, ok := l.policies[o]
	if !ok || policy.rev != rev {
		policy = read()
		policy.rev = rev
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
	if now.rev != was.rev {
		l.violations.owners[o] = true
	}
	if now.rev == was.rev || maps.Equal(was.labels, now.labels) &&
		maps.EqualFunc(was.away, now.away, func(a, b []cluster.Relation) bool {
			return slices.EqualFunc(a, b, cluster.Relation.Equal)
		}) {
		return
	}
	for row := range snap.Attempts(o) {
		held, ok := l.charged[store.AttemptKey{Task: row.Task, Number: row.Number}]
		if !ok {
			continue
		}
		if d := l.occupantOf(snap, row); d != nil && (fleetCharge{d.UUID, row.Node}) == held {
			l.fleet.Reserve(l.reservation(snap, row, d))
			l.needsPlacement = true
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

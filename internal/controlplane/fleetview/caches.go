package fleetview

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// policyCache holds, for each owner, the parts of its spec that concern the tasks of others. A policy is read once for
// each write of the spec.
type policyCache map[cluster.OwnerRef]observe.OwnerPolicy

// of returns the policy of an owner; an empty one for an owner that does not exist.
func (c policyCache) of(snap *store.Snapshot, o cluster.OwnerRef) observe.OwnerPolicy {
	revision, ok := observe.PolicyRevision(snap, o)
	if !ok {
		delete(c, o)
		return observe.OwnerPolicy{}
	}
	policy, ok := c[o]
	if !ok || policy.Revision != revision {
		policy = observe.PolicyOf(snap, o)
		c[o] = policy
	}
	return policy
}

// demandCache answers what a task of a definition takes up. It holds the last answer, as adjacent tasks often share a
// definition.
type demandCache struct {
	snap   *store.Snapshot
	ref    cluster.Ref
	demand cluster.Demand
}

// of returns what a task of the definition takes up.
func (c *demandCache) of(snap *store.Snapshot, r cluster.Ref) cluster.Demand {
	if c.snap == snap && c.ref == r {
		return c.demand
	}
	*c = demandCache{snap: snap, ref: r}
	if def, ok := snap.Definition(r); ok {
		c.demand = def.Value.Demand()
	}
	return c.demand
}

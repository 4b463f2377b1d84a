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

// requestsCache answers what a task of a definition requests. It holds the last answer, as adjacent tasks often share a
// definition.
type requestsCache struct {
	snap     *store.Snapshot
	ref      cluster.Ref
	requests observe.Requests
}

// of returns what a task of the definition requests.
func (c *requestsCache) of(snap *store.Snapshot, r cluster.Ref) observe.Requests {
	if c.snap != snap || c.ref != r {
		*c = requestsCache{snap: snap, ref: r, requests: observe.RequestsOf(snap, r)}
	}
	return c.requests
}

package workload

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// The functions below find the parts of long lists that changes touch, so that only those are computed. Every record
// that a list reads besides its own must be considered here. A missed change shows up some seconds later, when the
// whole list is computed.

// ownerTopics are the topics of lists of services and jobs.
const ownerTopics = store.TopicOwners | store.TopicNodes | store.TopicClusters | store.TopicDefinitions

// touchesOwners returns a function that reports whether changes may touch a list that shows some owners or their tasks.
// Changes of shared records touch all lists, and so do attempts without an owner.
func touchesOwners(shows func(cluster.OwnerRef) bool) func(*store.Changes) bool {
	return func(c *store.Changes) bool {
		if len(c.Nodes)+len(c.Definitions) > 0 || c.Clusters || c.Crons || c.Endpoints {
			return true
		}
		for o := range c.Owners { // order-free: any of them
			if shows(o) {
				return true
			}
		}
		for key := range c.Attempts { // order-free: any of them
			if _, ok := key.Task.Parts(); !ok {
				return true
			}
		}
		return false
	}
}

// changedOwners returns the services and jobs whose views may change: owners with changed records or tasks, owners with
// tasks on changed nodes, and daemons if nodes changed or are being drained. Whole says that all views may change.
func changedOwners(now *store.Snapshot, c *store.Changes) (owners map[cluster.OwnerRef]bool, whole bool) {
	if c.Clusters || len(c.Definitions) > 0 {
		return nil, true
	}
	owners = make(map[cluster.OwnerRef]bool, len(c.Owners))
	for o := range c.Owners { // order-free: a set is filled
		owners[o] = true
	}
	for node := range c.Nodes { // order-free: a set is filled
		for row := range now.NodeAttempts(node) {
			if o, ok := row.Ref(); ok {
				owners[o] = true
			}
		}
	}
	if len(c.Nodes) > 0 || hasDrain(now) {
		for e := range now.Services("") {
			if e.Value.Mode == cluster.ModeDaemon {
				owners[e.Value.Owner()] = true
			}
		}
	}
	return owners, false
}

// changedNames returns a function that lists the changed owners of a kind by the keys of their lists.
func changedNames(kind cluster.Kind) func(*store.Snapshot, *store.Changes) (map[string]bool, bool) {
	return func(now *store.Snapshot, c *store.Changes) (names map[string]bool, whole bool) {
		owners, whole := changedOwners(now, c)
		names = map[string]bool{}
		for o := range owners { // order-free: a set is filled
			if o.Kind == kind {
				names[o.Cluster+"/"+o.Name] = true
			}
		}
		return names, whole
	}
}

// changedCrons reports as whole whether crons changed, or jobs, which views of crons count.
func changedCrons(_ *store.Snapshot, c *store.Changes) (names map[string]bool, whole bool) {
	if c.Crons || c.Clusters {
		return nil, true
	}
	for o := range c.Owners { // order-free: any of them
		whole = whole || o.Kind == cluster.KindJob
	}
	return nil, whole
}

// hasDrain reports whether any node is being drained.
func hasDrain(snap *store.Snapshot) bool {
	for e := range snap.Hosts() {
		if e.Value.Drain != nil {
			return true
		}
	}
	return false
}

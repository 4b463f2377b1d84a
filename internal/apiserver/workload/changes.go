package workload

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Parts of long lists, so that a change computes what it touches and not the whole. What a list reads besides its own
// records stands here: whoever adds such a read adds it here as well. What is missed shows up with the next computation
// of the whole list, after some seconds.

// ownerTopics are what lists of services or jobs read.
const ownerTopics = store.TopicOwners | store.TopicNodes | store.TopicClusters | store.TopicDefinitions

// touchesOwners returns whether changes may be of a list that shows some services, jobs or their tasks: where they are
// of any of these, or of what all owners have in common. Attempts that have no owner are everybody's.
func touchesOwners(shows func(cluster.OwnerRef) bool) func(*store.Changes) bool {
	return func(c *store.Changes) bool {
		if len(c.Nodes)+len(c.Definitions) > 0 || c.Clusters || c.Crons {
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

// changedOwners returns which services and jobs are shown differently after changes: those with other records or tasks,
// those with tasks on nodes that changed, and daemons where nodes changed or empty themselves. Whole says that it may
// be all.
func changedOwners(now *store.Snapshot, c *store.Changes) (owners map[cluster.OwnerRef]bool, whole bool) {
	if c.Clusters || len(c.Definitions) > 0 {
		return nil, true
	}
	owners = make(map[cluster.OwnerRef]bool, len(c.Owners))
	for o := range c.Owners { // order-free: into a set
		owners[o] = true
	}
	for node := range c.Nodes { // order-free: into a set
		for row := range now.NodeAttempts(node) {
			if o, ok := row.Ref(); ok {
				owners[o] = true
			}
		}
	}
	if len(c.Nodes) > 0 || draining(now) {
		for e := range now.Services("") {
			if e.Value.Mode == cluster.ModeDaemon {
				owners[e.Value.Owner()] = true
			}
		}
	}
	return owners, false
}

// changedNames returns the owners of a kind among those that changed, as lists name them.
func changedNames(kind cluster.Kind) func(*store.Snapshot, *store.Changes) (map[string]bool, bool) {
	return func(now *store.Snapshot, c *store.Changes) (names map[string]bool, whole bool) {
		owners, whole := changedOwners(now, c)
		names = map[string]bool{}
		for o := range owners { // order-free: into a set
			if o.Kind == kind {
				names[o.Cluster+"/"+o.Name] = true
			}
		}
		return names, whole
	}
}

// changedCrons says whether crons changed, or jobs, which crons count.
func changedCrons(_ *store.Snapshot, c *store.Changes) (names map[string]bool, whole bool) {
	if c.Crons || c.Clusters {
		return nil, true
	}
	for o := range c.Owners { // order-free: any of them
		whole = whole || o.Kind == cluster.KindJob
	}
	return nil, whole
}

// draining reports whether any node is drained.
func draining(snap *store.Snapshot) bool {
	for e := range snap.Hosts() {
		if e.Value.Drain != nil {
			return true
		}
	}
	return false
}

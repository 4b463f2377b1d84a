package rendition

import (
	"maps"

	"github.com/berthd/berth/internal/store"
)

// topicsOf returns the topics of changes.
func topicsOf(c *store.Changes) (topics store.Topic) {
	for _, each := range [...]struct {
		has   bool
		topic store.Topic
	}{
		{len(c.Owners) > 0, store.TopicOwners},
		{len(c.Nodes) > 0, store.TopicNodes},
		{len(c.Attempts) > 0, store.TopicAttempts},
		{len(c.Definitions) > 0, store.TopicDefinitions},
		{c.Clusters, store.TopicClusters},
		{c.Plans, store.TopicPlans},
		{c.Events, store.TopicEvents},
		{c.Leader, store.TopicLeader},
		{c.Servers, store.TopicServers},
		{c.Domain, store.TopicDomain},
		{c.Crons, store.TopicCrons},
		{c.Pools, store.TopicPools},
		{c.Reservations, store.TopicReservations},
		{c.Secrets, store.TopicSecrets},
		{c.Endpoints, store.TopicEndpoints},
	} {
		if each.has {
			topics |= each.topic
		}
	}
	return topics
}

// cloneChanges returns a copy of changes that shares nothing with them.
func cloneChanges(c *store.Changes) *store.Changes {
	copied := *c
	copied.Owners, copied.Nodes = maps.Clone(c.Owners), maps.Clone(c.Nodes)
	copied.Attempts, copied.Definitions = maps.Clone(c.Attempts), maps.Clone(c.Definitions)
	return &copied
}

// mergeChanges adds more changes to c. The maps of c must belong to the caller.
func mergeChanges(c, more *store.Changes) {
	maps.Copy(c.Owners, more.Owners)
	maps.Copy(c.Nodes, more.Nodes)
	maps.Copy(c.Attempts, more.Attempts)
	maps.Copy(c.Definitions, more.Definitions)
	c.Clusters = c.Clusters || more.Clusters
	c.Plans = c.Plans || more.Plans
	c.Events = c.Events || more.Events
	c.Leader = c.Leader || more.Leader
	c.Servers = c.Servers || more.Servers
	c.Domain = c.Domain || more.Domain
	c.Crons = c.Crons || more.Crons
	c.Pools = c.Pools || more.Pools
	c.Reservations = c.Reservations || more.Reservations
	c.Secrets = c.Secrets || more.Secrets
	c.Endpoints = c.Endpoints || more.Endpoints
	c.Resync = c.Resync || more.Resync
}

package rendition

import (
	"maps"

	"github.com/berthd/berth/internal/store"
)

// changed reports whether anything that a follower asked for is among the changes.
func changed(c *store.Changes) bool {
	return len(c.Owners)+len(c.Nodes)+len(c.Attempts)+len(c.Definitions) > 0 || c.Clusters || c.Plans || c.Events || c.Leader ||
		c.Servers || c.Domain || c.Crons || c.Reservations || c.Secrets || c.Resync
}

// merge adds what was taken before to changes; nil is nothing.
func merge(c, before *store.Changes) {
	if before == nil {
		return
	}
	maps.Copy(c.Owners, before.Owners)
	maps.Copy(c.Nodes, before.Nodes)
	maps.Copy(c.Attempts, before.Attempts)
	maps.Copy(c.Definitions, before.Definitions)
	c.Clusters = c.Clusters || before.Clusters
	c.Plans = c.Plans || before.Plans
	c.Events = c.Events || before.Events
	c.Leader = c.Leader || before.Leader
	c.Servers = c.Servers || before.Servers
	c.Domain = c.Domain || before.Domain
	c.Crons = c.Crons || before.Crons
	c.Reservations = c.Reservations || before.Reservations
	c.Secrets = c.Secrets || before.Secrets
	c.Resync = c.Resync || before.Resync
}

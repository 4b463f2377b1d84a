package nodeapi

import "github.com/berthd/berth/internal/store"

// nodeTopics are what the list of nodes reads.
const nodeTopics = store.TopicNodes | store.TopicAttempts | store.TopicDefinitions

// changedNodes returns which nodes are shown differently after changes: those with other records, those that attempts
// came to or left, and those whose drain waits for an attempt elsewhere. Whole says that it may be all.
func changedNodes(before, now *store.Snapshot, c *store.Changes) (nodes map[string]bool, whole bool) {
	if len(c.Definitions) > 0 { // what tasks reserve
		return nil, true
	}
	nodes = make(map[string]bool, len(c.Nodes)+len(c.Attempts))
	for name := range c.Nodes { // order-free: into a set
		nodes[name] = true
	}
	for key := range c.Attempts { // order-free: into a set
		for _, snap := range []*store.Snapshot{before, now} {
			for row := range snap.TaskAttempts(key.Task) {
				nodes[row.Node] = true
			}
		}
	}
	delete(nodes, "")
	return nodes, false
}

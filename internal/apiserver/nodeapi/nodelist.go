package nodeapi

import "github.com/berthd/berth/internal/store"

// nodeTopics are the topics of the list of nodes.
const nodeTopics = store.TopicNodes | store.TopicAttempts | store.TopicDefinitions

// changedNodes returns the nodes whose views may change: nodes with changed records, nodes that attempts came to or
// left, and nodes whose drain waits for an attempt elsewhere. Whole says that all may change.
func changedNodes(before, now *store.Snapshot, c *store.Changes) (nodes map[string]bool, whole bool) {
	if len(c.Definitions) > 0 { // they hold the resources of tasks
		return nil, true
	}
	nodes = make(map[string]bool, len(c.Nodes)+len(c.Attempts))
	for name := range c.Nodes { // order-free: a set is filled
		nodes[name] = true
	}
	for key := range c.Attempts { // order-free: a set is filled
		for _, snap := range []*store.Snapshot{before, now} {
			for row := range snap.TaskAttempts(key.Task) {
				nodes[row.Node] = true
			}
		}
	}
	delete(nodes, "")
	return nodes, false
}

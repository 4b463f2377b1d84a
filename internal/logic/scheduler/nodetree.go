package scheduler

import "github.com/berthd/berth/internal/cluster"

// nodeTree is a tree with bounds by which a search can skip it. The nodeTrees of all node classes are in one slice.
type nodeTree struct {
	*page
	low, high uint64 // the first and the last key
	maxFree   cluster.Demand
}

func nodeTreeOf(root *page) nodeTree {
	if root == nil {
		return nodeTree{}
	}
	k := childOf(root)
	return nodeTree{root, k.key, root.lastKey(), k.maxFree}
}

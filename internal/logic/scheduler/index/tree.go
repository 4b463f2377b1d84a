package index

import (
	"github.com/berthd/berth/internal/cluster"
)

// Tree is a tree with bounds by which a search can skip it. The nodeTrees of all node classes are in one slice.
type Tree struct {
	*Page
	Low, High uint64 // the first and the last key
	MaxFree   cluster.Demand
}

// TreeOf returns the tree of a root page, which may be nil.
func TreeOf(root *Page) Tree {
	if root == nil {
		return Tree{}
	}
	k := ChildOf(root)
	return Tree{root, k.Key, root.lastKey(), k.MaxFree}
}

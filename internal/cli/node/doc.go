// Package node implements the commands about nodes, their taints and their pools.
package node

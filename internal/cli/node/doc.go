// Package node has the commands of nodes.
package node

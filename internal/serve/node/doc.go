// Package node runs an agent with its executors.
package node

package executor

import "github.com/berthd/berth/internal/cluster"

// UserNamer is an optional interface of executors whose programs run as users of the node.
type UserNamer interface {
	// UserOf returns which user the program of a container will be, or why it cannot be.
	UserOf(c *cluster.Container) (uid, gid int, err error)
}

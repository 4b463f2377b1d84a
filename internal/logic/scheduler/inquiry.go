package scheduler

import "github.com/berthd/berth/internal/cluster"

// inquiry asks nodes about one task class, beside the turns of a cycle. The class must be prepared.
type inquiry struct {
	*cycle
	c *taskClass
}

// inquire starts a cycle for one task, without its gang.
func inquire(f *Fleet, p cluster.Pending, opts Options) inquiry {
	p.Gang = ""
	y := newCycle(f, []cluster.Pending{p}, opts)
	y.start([]int32{0})
	return inquiry{y, y.classes.at[0]}
}

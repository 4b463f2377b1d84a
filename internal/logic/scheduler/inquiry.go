package scheduler

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/cycle"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
	"github.com/berthd/berth/internal/logic/scheduler/taskclass"
)

// inquiry asks nodes about one task class, beside the turns of a cycle. The class must be prepared.
type inquiry struct {
	*cycle.Cycle
	c *taskclass.Class
}

// inquire starts a cycle for one task, without its gang.
func inquire(f *fleet.Fleet, p cluster.Pending, opts taskclass.Options) inquiry {
	p.Gang = ""
	y := cycle.New(f, []cluster.Pending{p}, opts)
	y.Start([]int32{0})
	return inquiry{y, y.Classes.At[0]}
}

package cycle

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
)

// Placement is a task with the node that it should run on.
type Placement struct {
	// Pending is the task's index in the slice that Schedule was given.
	Pending int
	Task    cluster.TaskID
	Node    string
	// Ports maps each of the task's ports to its number on the node; nil for a task without ports.
	Ports map[string]int
	// Devices are the devices that the task uses, ordered by ID; nil for a task that requests none.
	Devices []cluster.DeviceUse
}

// Reservation returns what the placement of p reserves on its node, for Fleet.Reserve. The committer gives the UUID.
func (pl *Placement) Reservation(p *cluster.Pending, uuid string) fleet.Reservation {
	r := fleet.Reservation{
		UUID: uuid, Task: pl.Task, Definition: p.Definition, Node: pl.Node, Demand: p.Demand,
		Labels: p.Labels, Priority: p.Priority, Devices: pl.Devices, Away: fleet.AwayOf(&p.Placement),
		Requests: p.Devices, Batch: p.Owner.Kind == cluster.KindJob, Limit: time.Duration(p.TimeLimit),
		User: p.User,
	}
	if p.Concurrency != nil {
		r.Group = p.Concurrency.Group
	}
	if p.JobConcurrency != nil {
		r.JobGroup = p.JobConcurrency.Group
	}
	for _, port := range p.Ports {
		r.Ports = append(r.Ports, pl.Ports[port.Name])
	}
	return r
}

// PlacedTask is the position of a placed task, and its node.
type PlacedTask struct{ Position, Slot int32 }

package main

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// fairQueue is the policy fair: the scheduler itself, on one node that has all processors.
type fairQueue struct {
	fleet   *scheduler.Fleet
	running map[int]string // UUIDs by job
}

func newFairQueue() *fairQueue {
	return &fairQueue{fleet: scheduler.NewFleet(), running: map[int]string{}}
}

func (q *fairQueue) ended(job) {}

func (q *fairQueue) start(s *state) (start []int) {
	runs, procs := map[int]bool{}, s.free
	for _, r := range s.running {
		runs[r.job] = true
		procs += s.jobs[r.job].procs
	}
	for i, uuid := range q.running {
		if !runs[i] {
			q.fleet.Release(uuid)
			delete(q.running, i)
		}
	}
	q.fleet.SetNode(scheduler.Node{
		Name: "n", State: cluster.NodeReady, Executors: []string{"process"},
		Capacity: cluster.Demand{CPU: cluster.MilliCPU(1000 * procs)},
	})
	now := time.Unix(s.now, 0)
	pending := make([]cluster.Pending, len(s.waiting))
	for k, i := range s.waiting {
		j := s.jobs[i]
		owner := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "log", Name: fmt.Sprintf("%07d", i)}
		pending[k] = cluster.Pending{
			Owner: owner, Task: cluster.JobTask(owner.Cluster, owner.Name, 1, "s", 0), Attempt: 1,
			Priority: cluster.DefaultPriority, Queue: cluster.QueueFair, User: j.user, Weight: 1, Plain: true,
			Demand:    cluster.Demand{CPU: cluster.MilliCPU(1000 * j.procs)},
			TimeLimit: cluster.Duration(seconds(j.limit)), Since: time.Unix(j.arrived, 0),
		}
	}
	res := scheduler.Schedule(q.fleet, pending, scheduler.Options{Now: now})
	for i := range res.Placements {
		p := &res.Placements[i]
		r := p.Reservation(&pending[p.Pending], string(p.Task))
		r.Started = now
		q.fleet.Reserve(r)
		q.running[s.waiting[p.Pending]] = r.UUID
		start = append(start, s.waiting[p.Pending])
	}
	return start
}

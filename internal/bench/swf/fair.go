package main

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// fairQueue is the policy fair: the scheduler itself, on one node that has all processors.
type fairQueue struct {
	gangs   bool // a job is a gang of tasks of one processor, else one task
	fleet   *scheduler.Fleet
	running map[int][]string // UUIDs by job
}

func newFairQueue(gangs bool) *fairQueue {
	return &fairQueue{gangs: gangs, fleet: scheduler.NewFleet(), running: map[int][]string{}}
}

func (q *fairQueue) ended(job) {}

func (q *fairQueue) start(s *state) (start []int) {
	runs, procs := map[int]bool{}, s.free
	for _, r := range s.running {
		runs[r.job] = true
		procs += s.jobs[r.job].procs
	}
	for i, uuids := range q.running {
		if runs[i] {
			continue
		}
		for _, uuid := range uuids {
			q.fleet.Release(uuid)
		}
		delete(q.running, i)
	}
	q.fleet.SetNode(scheduler.Node{
		Name: "n", State: cluster.NodeReady, Executors: []string{"process"},
		Capacity: cluster.Demand{CPU: cluster.MilliCPU(1000 * procs)},
	})
	now := time.Unix(s.now, 0)
	var pending []cluster.Pending
	var of []int // jobs of the pending tasks
	for _, i := range s.waiting {
		for _, p := range q.tasks(i, s.jobs[i]) {
			pending, of = append(pending, p), append(of, i)
		}
	}
	res := scheduler.Schedule(q.fleet, pending, scheduler.Options{Now: now})
	for i := range res.Placements {
		p := &res.Placements[i]
		r := p.Reservation(&pending[p.Pending], string(p.Task))
		r.Started = now
		q.fleet.Reserve(r)
		job := of[p.Pending]
		if len(q.running[job]) == 0 {
			start = append(start, job)
		}
		q.running[job] = append(q.running[job], r.UUID)
	}
	return start
}

// tasks returns the waiting tasks of a job.
func (q *fairQueue) tasks(number int, j job) []cluster.Pending {
	owner := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "log", Name: fmt.Sprintf("%07d", number)}
	task := cluster.Pending{
		Owner: owner, Task: cluster.JobTask(owner.Cluster, owner.Name, 1, "s", 0), Attempt: 1,
		Priority: cluster.DefaultPriority, Queue: cluster.QueueFair, User: j.user, Weight: 1, Plain: true,
		Demand:    cluster.Demand{CPU: cluster.MilliCPU(1000 * j.procs)},
		TimeLimit: cluster.Duration(seconds(j.limit)), Since: time.Unix(j.arrived, 0),
	}
	if !q.gangs || j.procs == 1 {
		return []cluster.Pending{task}
	}
	task.Gang, task.GangSize, task.Demand.CPU = owner.Name, int(j.procs), 1000
	members := make([]cluster.Pending, j.procs)
	for i := range members {
		members[i] = task
		members[i].Task = cluster.JobTask(owner.Cluster, owner.Name, 1, "s", i)
	}
	return members
}

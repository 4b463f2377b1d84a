package scheduler_test

import (
	"fmt"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// queuedFleet returns 1,000 nodes of which each has room for one task of the service and for none of the jobs.
func queuedFleet() *scheduler.Fleet {
	f := scheduler.NewFleet()
	for i := range 1000 {
		n := scheduler.Node{
			Name: fmt.Sprintf("n%d", i), State: cluster.NodeReady, Executors: []string{"process"},
			Capacity: cluster.Demand{CPU: 1000},
		}
		f.SetNode(n)
		f.Reserve(scheduler.Reservation{
			UUID: n.Name, Task: cluster.JobTask("c", "old", 1, "s", i), Node: n.Name, Demand: cluster.Demand{CPU: 900},
			Batch: true,
		})
	}
	return f
}

// queuedTasks returns a task of a service, and tasks of jobs.
func queuedTasks(jobs, tasks int) []cluster.Pending {
	pending := []cluster.Pending{{
		Owner: cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"}, Priority: 500, Attempt: 1,
		Task: cluster.ServiceTask("c", "web", 1, 0), Demand: cluster.Demand{CPU: 100},
	}}
	for i := range jobs {
		owner := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: fmt.Sprintf("j%d", i)}
		pending = append(pending, cluster.Pending{
			Owner: owner, Task: cluster.JobTask("c", owner.Name, 1, "work", 0), Further: tasks - 1, Priority: 500,
			Attempt: 1, Demand: cluster.Demand{CPU: 200}, Queue: cluster.QueueEASY,
		})
	}
	return pending
}

// BenchmarkQueueLength places one task of a service beside a million waiting tasks of jobs, and beside none.
func BenchmarkQueueLength(b *testing.B) {
	f := queuedFleet()
	for _, c := range []struct{ jobs, tasks int }{{0, 0}, {1, 1_000_000}, {1000, 1000}, {10_000, 100}} {
		pending := queuedTasks(c.jobs, c.tasks)
		b.Run(fmt.Sprintf("jobs=%d/tasks=%d", c.jobs, c.tasks), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if res := scheduler.Schedule(f, pending, scheduler.Options{}); len(res.Placements) != 1 {
					b.Fatalf("%d tasks were placed", len(res.Placements))
				}
			}
		})
	}
}

package scheduler_test

import (
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// BenchmarkLimited schedules 100,000 tasks beyond the quota of their cluster, 1,000 of each job.
func BenchmarkLimited(b *testing.B) {
	f := scheduler.NewFleet()
	f.SetNode(scheduler.Node{
		Name: "n1", State: cluster.NodeReady, Executors: []string{"process"}, Capacity: cluster.Demand{CPU: 1000},
	})
	var pending []cluster.Pending
	for i := range 100_000 {
		owner := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "j" + string(rune('a'+i/1000%26))}
		pending = append(pending, cluster.Pending{
			Owner: owner, Task: cluster.JobTask("c", owner.Name, uint64(1+i/26_000), "work", i), Priority: 500,
			Demand: cluster.Demand{CPU: 100},
		})
	}
	for name, q := range map[string]*cluster.Quota{"quota": {CPU: 50, Tasks: 9, Jobs: 9}, "none": nil} {
		b.Run(name, func(b *testing.B) {
			f.Limits.SetQuota("c", q)
			b.ReportAllocs()
			for b.Loop() {
				scheduler.Schedule(f, pending, scheduler.Options{})
			}
		})
	}
}

package scheduler_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// TestLines checks which nodes the lines of tasks have.
func TestLines(t *testing.T) {
	f := scheduler.NewFleet()
	for i, name := range []string{"n1", "n2", "n3"} {
		n := scheduler.Node{
			Name: name, State: cluster.NodeReady, Capacity: cluster.Demand{CPU: 4000}, Cordon: name == "n2",
			Executors: []string{"containerd"}, Labels: cluster.Labels{"zone": []string{"a", "b", "b"}[i]},
		}
		f.SetNode(n)
	}
	job := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "j"}
	task := func(index int, change func(*cluster.Pending)) cluster.Pending {
		p := cluster.Pending{
			Task: cluster.JobTask("c", "j", 1, "s", index), Attempt: 1, Owner: job, Priority: 500,
			Demand: cluster.Demand{CPU: 1000}, Queue: cluster.QueueEASY,
		}
		change(&p)
		return p
	}
	lines, of := scheduler.Lines(f, []cluster.Pending{
		task(0, func(*cluster.Pending) {}),
		task(1, func(p *cluster.Pending) { p.Demand.CPU = 9000 }),
		task(2, func(p *cluster.Pending) { p.Placement.Pool = "gpu" }),
		task(3, func(p *cluster.Pending) { p.OnlyNode = "n3" }),
	}, scheduler.Options{})
	if diff := cmp.Diff([][]int32{{0, 2}, nil, {2}}, lines); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{0, 0, 1, 2}, of); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

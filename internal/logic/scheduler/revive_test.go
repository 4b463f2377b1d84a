package scheduler_test

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// A task with promised room waits for a task that it must be near, and its room keeps others away. Once it is placed
// elsewhere in the same cycle, the others get the room.
func TestKeptRoomIsGivenBack(t *testing.T) {
	f := scheduler.NewFleet()
	for _, name := range []string{"n0", "n1"} {
		f.SetNode(scheduler.Node{
			Name: name, State: cluster.NodeReady, Executors: []string{"process"}, Labels: cluster.Labels{"zone": name},
			Capacity: cluster.Demand{CPU: 2000, Memory: cluster.GiB, Disk: cluster.GiB},
		})
	}
	task := func(owner string, priority int, cpu cluster.MilliCPU) cluster.Pending {
		return cluster.Pending{
			Task: cluster.TaskID("c." + owner + ".1.0"), Attempt: 1,
			Owner:    cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: owner},
			Priority: priority, Demand: cluster.Demand{CPU: cpu}, Since: epoch().Add(time.Second),
		}
	}
	near, beside, first := task("near", 900, 1500), task("beside", 500, 500), task("first", 700, 1500)
	near.Promised = "n0"
	near.Placement.Relations = []cluster.Relation{
		{Labels: cluster.Labels{"app": "a"}, Required: true, Attribute: "label.zone"},
	}
	first.OnlyNode = "n0"
	beside.OnlyNode, beside.Labels = "n1", cluster.Labels{"app": "a"}
	res := scheduler.Schedule(f, []cluster.Pending{near, beside, first}, scheduler.Options{})
	got := map[cluster.TaskID]string{}
	for _, p := range res.Placements {
		got[p.Task] = p.Node
	}
	if got[near.Task] != "n1" || got[beside.Task] != "n1" || got[first.Task] != "n0" {
		t.Errorf("placed: %v, waiting: %+v", got, res.Waiting)
	}
}

// TestEachPromiseIsReportedSeparately uses two equal tasks with a promise of the same node. Each gets its own reasons:
// only the second is refused because of the first's promised room.
func TestEachPromiseIsReportedSeparately(t *testing.T) {
	f := scheduler.NewFleet()
	f.SetNode(scheduler.Node{
		Name: "n0", State: cluster.NodeReady, Executors: []string{"process"},
		Capacity:      cluster.Demand{CPU: 2000, Memory: cluster.GiB, Disk: cluster.GiB},
		ReservedPorts: []int{8080},
	})
	var pending []cluster.Pending
	for i := range 2 {
		pending = append(pending, cluster.Pending{
			Task: cluster.TaskID(fmt.Sprintf("c.web.1.%d", i)), Attempt: 1,
			Owner:    cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"},
			Priority: 500, Since: epoch(), Promised: "n0",
			Ports: []cluster.Port{{Name: "a", Port: 443}, {Name: "b", Port: 8080}},
		})
	}
	res := scheduler.Schedule(f, pending, scheduler.Options{})
	if len(res.Waiting) != 2 {
		t.Fatalf("%+v", res)
	}
	for i, port := range []int{8080, 443} {
		if got := res.Waiting[i].Refusals; len(got) != 1 || got[0].Port != port {
			t.Errorf("%s got %+v, want port %d", res.Waiting[i].Task, got, port)
		}
	}
}

// crowdedTasks returns tasks that must be near a task that is placed later. The fleet has room for that task and one of
// them.
func crowdedTasks(n int) (*scheduler.Fleet, []cluster.Pending) {
	f := scheduler.NewFleet()
	f.SetNode(scheduler.Node{
		Name: "n0", State: cluster.NodeReady, Executors: []string{"process"}, Labels: cluster.Labels{"zone": "z"},
		Capacity: cluster.Demand{CPU: 2000, Memory: cluster.GiB, Disk: cluster.GiB},
	})
	pending := make([]cluster.Pending, n)
	for i := range pending {
		pending[i] = cluster.Pending{
			Task: cluster.TaskID(fmt.Sprintf("c.near.1.%d", i)), Attempt: 1,
			Owner:    cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "near"},
			Priority: 900, Demand: cluster.Demand{CPU: 1000}, Since: epoch(), Count: n,
		}
		pending[i].Placement.Relations = []cluster.Relation{
			{Labels: cluster.Labels{"app": "a"}, Required: true, Attribute: "label.zone"},
		}
	}
	pending[n-1] = cluster.Pending{
		Task: "c.anchor.1.0", Attempt: 1,
		Owner:    cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "anchor"},
		Priority: 500, Demand: cluster.Demand{CPU: 1000}, Since: epoch(), Count: 1, Labels: cluster.Labels{"app": "a"},
	}
	return f, pending
}

// TestRevivedTasksCostNoMoreEach checks that the cost of retrying a waiting task does not grow with the number of such
// tasks. Other load only adds processor time, and evicts data from the processor's caches. Both fleets are too large
// for the caches of a core, their rounds alternate, and the test compares the least times; more rounds cannot hide a
// cost that really grows.
func TestRevivedTasksCostNoMoreEach(t *testing.T) {
	const fewTasks, manyTasks = 1 << 13, 1 << 17
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	each := func(n int) func() float64 {
		f, pending := crowdedTasks(n)
		return func() float64 {
			began := processorTime(t)
			res := scheduler.Schedule(f, pending, scheduler.Options{})
			used := processorTime(t) - began
			if len(res.Placements) != 2 || len(res.Waiting) != n-2 {
				t.Fatalf("%d placed, %d wait, want 2 and %d", len(res.Placements), len(res.Waiting), n-2)
			}
			return float64(used) / float64(n)
		}
	}
	fewRound, manyRound := each(fewTasks), each(manyTasks)
	few, many := math.Inf(1), math.Inf(1)
	for round := range 10 {
		few, many = min(few, fewRound()), min(many, manyRound())
		if round >= 4 && many <= 4*few {
			break
		}
	}
	t.Logf("processor time of a task: %.0f ns of %d, %.0f ns of %d", few, fewTasks, many, manyTasks)
	if many > 4*few {
		t.Errorf("a task costs %.1f times as much where there are 16 times as many", many/few)
	}
}

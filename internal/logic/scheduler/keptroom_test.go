package scheduler_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// keptFleet is one node of 2 CPUs and 2 GiB, on which the stopped service c/old keeps 1.5 CPUs, 1 GiB and port 8080.
func keptFleet() (*scheduler.Fleet, cluster.OwnerRef) {
	f := scheduler.NewFleet()
	f.SetNode(scheduler.Node{
		Name: "n1", State: cluster.NodeReady, Executors: []string{"process"},
		Capacity: cluster.Demand{CPU: 2000, Memory: 2 * cluster.GiB},
	})
	old := cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "old"}
	f.Keep(scheduler.KeptRoom{
		Owner: old, Node: "n1", Demand: cluster.Demand{CPU: 1500, Memory: cluster.GiB}, Ports: []int{8080},
	})
	return f, old
}

// TestKeptRoomRefusesOthers checks that no other task gets the room that a service keeps, and that the reason names it.
func TestKeptRoomRefusesOthers(t *testing.T) {
	const names = "kept for the service c/old, which keeps its room"
	for _, test := range []struct {
		name   string
		demand cluster.Demand
		ports  []cluster.Port
		want   string // the reason; empty for a task that is placed
	}{
		{"what is left is for others", cluster.Demand{CPU: 500, Memory: cluster.GiB}, nil, ""},
		{"CPU", cluster.Demand{CPU: 600}, nil, "1 node: CPU short by 100m, some of it " + names},
		{
			"memory",
			cluster.Demand{CPU: 1, Memory: cluster.GiB + cluster.MiB},
			nil,
			"1 node: memory short by 1 MiB, some of it " + names,
		},
		{"a port", cluster.Demand{}, []cluster.Port{{Name: "http", Port: 8080}}, "1 node: port 8080 " + names},
		{"another port", cluster.Demand{}, []cluster.Port{{Name: "http", Port: 8081}}, ""},
		{"disk, of which it keeps none", cluster.Demand{Disk: cluster.GiB}, nil, "1 node: disk short by 1 GiB"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, _ := keptFleet()
			res := scheduler.Schedule(f, []cluster.Pending{{
				Task: "c.new.1.0", Priority: 500, Demand: test.demand, Ports: test.ports,
				Owner: cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "new"},
			}}, scheduler.Options{})
			got := ""
			if len(res.Waiting) == 1 {
				got = res.Waiting[0].Sentence
			}
			if got != test.want {
				t.Errorf("reason %q, want %q", got, test.want)
			}
		})
	}
}

// TestKeptRoomIsForItsOwner checks that a started service gets its room back before more urgent tasks that wait for it,
// and that the room is free once it is no longer kept.
func TestKeptRoomIsForItsOwner(t *testing.T) {
	f, old := keptFleet()
	before := f.Clone()
	own := cluster.Pending{
		Task: "c.old.1.0", Priority: 1, Owner: old, Demand: cluster.Demand{CPU: 1500, Memory: cluster.GiB},
		Ports: []cluster.Port{{Name: "http", Port: 8080}}, Promised: "n1",
	}
	urgent := cluster.Pending{
		Task: "c.new.1.0", Priority: 900, Owner: cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "new"},
		Demand: cluster.Demand{CPU: 1000},
	}
	placed := func(f *scheduler.Fleet, pending ...cluster.Pending) (tasks []cluster.TaskID) {
		for _, p := range scheduler.Schedule(f, pending, scheduler.Options{}).Placements {
			tasks = append(tasks, p.Task)
		}
		return tasks
	}
	if diff := cmp.Diff([]cluster.TaskID{own.Task}, placed(f, urgent, own)); diff != "" {
		t.Errorf("with both waiting (-want +got):\n%s", diff)
	}
	blocked := own
	blocked.Placement.Constraints = []cluster.Constraint{{Attribute: "node.name", Op: cluster.OpEqual, Value: "n2"}}
	if got := placed(f, urgent, blocked); got != nil {
		t.Errorf("placed %v, want none: the owner waits for another reason, and keeps its room", got)
	}
	_, used, _ := f.Node("n1")
	_, usedBefore, _ := before.Node("n1")
	if used != usedBefore {
		t.Errorf("the fleet has %+v in use after the cycles, want %+v", used, usedBefore)
	}
	if _, kept := f.EndKeep(old); !kept {
		t.Fatal("the service keeps nothing")
	}
	if diff := cmp.Diff([]cluster.TaskID{urgent.Task}, placed(f, urgent)); diff != "" {
		t.Errorf("once nothing is kept (-want +got):\n%s", diff)
	}
	if got := placed(before, urgent); got != nil {
		t.Errorf("placed %v in the copy, want none: the copy keeps the room", got)
	}
}

// TestKeptRoomOutlivesItsNode checks that the room is kept when the node goes and comes back.
func TestKeptRoomOutlivesItsNode(t *testing.T) {
	f, old := keptFleet()
	n, _, _ := f.Node("n1")
	f.RemoveNode("n1")
	f.SetNode(n)
	if _, used, _ := f.Node("n1"); used.CPU != 1500 {
		t.Errorf("%v CPU are in use after the node came back, want 1500m", used.CPU)
	}
	f.RemoveNode("n1")
	f.EndKeep(old)
	f.SetNode(n)
	if _, used, _ := f.Node("n1"); used.CPU != 0 {
		t.Errorf("%v CPU are in use once nothing is kept, want 0", used.CPU)
	}
}

// TestKeptDevices checks that no other task gets the devices that a service keeps, that its own task gets them back,
// and that a task that was placed on a kept device moves the service to another one.
func TestKeptDevices(t *testing.T) {
	f := scheduler.NewFleet()
	gpu := func(id string) cluster.Device { return cluster.Device{ID: id, Type: "gpu", Model: "A100", Numa: -1} }
	f.SetNode(scheduler.Node{
		Name: "n1", State: cluster.NodeReady, Executors: []string{"process"}, Capacity: cluster.Demand{CPU: 2000},
		Devices: []cluster.Device{gpu("gpu-0"), gpu("gpu-1"), {ID: "fpga-0", Type: "fpga", Numa: -1}},
	})
	request := func(n int) []cluster.DeviceRequest { return []cluster.DeviceRequest{{Type: "gpu", Count: n}} }
	old := cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "old"}
	f.Keep(scheduler.KeptRoom{Owner: old, Node: "n1", Devices: request(1)})
	task := func(name string, priority int, devices []cluster.DeviceRequest) cluster.Pending {
		return cluster.Pending{
			Task: cluster.TaskID("c." + name + ".1.0"), Priority: priority, Devices: devices,
			Owner: cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: name},
		}
	}
	both := task("both", 900, request(2))
	res := scheduler.Schedule(f, []cluster.Pending{both}, scheduler.Options{})
	const reason = "1 node: too few gpu free (some of them kept for the service c/old, which keeps its room): " +
		"short by 1"
	if len(res.Waiting) != 1 || res.Waiting[0].Sentence != reason {
		t.Errorf("placed %v, waiting %+v, want the reason %q", res.Placements, res.Waiting, reason)
	}
	fpga := task("fpga", 500, []cluster.DeviceRequest{{Type: "fpga", Count: 2}})
	res = scheduler.Schedule(f, []cluster.Pending{fpga}, scheduler.Options{})
	if len(res.Waiting) != 1 || res.Waiting[0].Sentence != "1 node: too few fpga free: short by 1" {
		t.Errorf("a device of another type: waiting %+v", res.Waiting)
	}

	own := task("old", 1, request(1))
	own.Promised = "n1"
	res = scheduler.Schedule(f, []cluster.Pending{both, own, task("one", 800, request(1))}, scheduler.Options{})
	used := map[string]cluster.TaskID{}
	for _, p := range res.Placements {
		for _, d := range p.Devices {
			used[d.ID] = p.Task
		}
	}
	if len(used) != 2 || len(res.Placements) != 2 || len(res.Waiting) != 1 || res.Waiting[0].Task != both.Task {
		t.Errorf("devices %v of %v, waiting %+v, want one each for old and one", used, res.Placements, res.Waiting)
	}

	kept, _ := f.Kept(old)
	taken := kept.Held()[0]
	f.Reserve(scheduler.Reservation{UUID: "u", Node: "n1", Devices: []cluster.DeviceUse{taken}})
	if kept, _ = f.Kept(old); len(kept.Held()) != 1 || kept.Held()[0].ID == taken.ID {
		t.Errorf("holds %v after a task got %v, want the other one", kept.Held(), taken)
	}
	f.SetNode(scheduler.Node{Name: "n1", State: cluster.NodeReady, Devices: []cluster.Device{gpu(taken.ID)}})
	if kept, _ = f.Kept(old); len(kept.Held()) != 0 {
		t.Errorf("holds %v while the node has one device, which a task uses", kept.Held())
	}
	f.Release("u")
	if kept, _ = f.Kept(old); len(kept.Held()) != 1 || kept.Held()[0].ID != taken.ID {
		t.Errorf("holds %v once the task has ended, want %v", kept.Held(), taken)
	}
}

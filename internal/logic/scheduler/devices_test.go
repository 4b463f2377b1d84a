package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// pinnedPending is a task whose container pins CPUs, on one NUMA node with its devices if pinning says so.
func pinnedPending(name string, cores int, pinning cluster.Pinning, devices ...cluster.DeviceRequest) cluster.Pending {
	d := cluster.TaskDefinition{Name: name, Version: 1, Containers: []cluster.Container{{
		Resources: cluster.Resources{CPU: cluster.MilliCPU(cores) * 1000, CPUPinning: pinning, Devices: devices},
	}}}
	return cluster.Pending{
		Task: cluster.ServiceTask("c", name, 1, 0), Attempt: 1,
		Owner:      cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: name},
		Definition: d.Ref(), Count: 1, Priority: 50, Demand: d.Demand(), Devices: d.Devices(),
	}
}

func numaNode(name string, devices ...cluster.Device) scheduler.Node {
	return scheduler.Node{
		Name: name, State: cluster.NodeReady, Executors: []string{"containerd"}, Devices: devices,
		Capacity: cluster.Demand{CPU: 64_000, Memory: cluster.TiB, Disk: cluster.TiB},
	}
}

func coreAt(cpu, numa int) cluster.Device {
	return cluster.Device{ID: fmt.Sprintf("cpu%d", cpu), Type: cluster.CoreType, Numa: numa}
}

// Tasks that demand one NUMA node get their cores and devices from one: the fuller one if both suit. A task that no
// single NUMA node can serve waits and states it, even with enough cores in all.
func TestOneNumaNode(t *testing.T) {
	f := scheduler.NewFleet()
	f.SetNode(numaNode("n1", coreAt(0, 0), coreAt(1, 0), coreAt(2, 0), coreAt(3, 1), coreAt(4, 1),
		cluster.Device{ID: "g", Type: "gpu", Numa: 0}, cluster.Device{ID: "x", Type: "fpga", Numa: -1}))
	place := func(p cluster.Pending) string {
		t.Helper()
		res := scheduler.Schedule(f, []cluster.Pending{p}, scheduler.Options{})
		if len(res.Placements) == 0 {
			return "waits: " + res.Waiting[0].Sentence
		}
		f.Reserve(res.Placements[0].Reservation(&p, string(p.Task)))
		var ids []string
		for _, u := range res.Placements[0].Devices {
			ids = append(ids, u.ID)
		}
		return strings.Join(ids, " ")
	}
	for _, c := range []struct {
		pending cluster.Pending
		want    string
	}{
		{pinnedPending("a", 1, cluster.PinNuma), "cpu3"},
		{pinnedPending("b", 1, cluster.PinNuma, cluster.DeviceRequest{Type: "gpu"},
			cluster.DeviceRequest{Type: "fpga"}), "cpu0 g x"},
		{pinnedPending("c", 3, cluster.PinNuma), "waits: 1 node: too few core free on one NUMA node: short by 1"},
		{pinnedPending("d", 3, cluster.PinCores), "cpu1 cpu2 cpu4"},
		{pinnedPending("e", 1, cluster.PinCores), "waits: 1 node: too few core free: short by 1"},
	} {
		if got := place(c.pending); got != c.want {
			t.Errorf("%s: got %q, want %q", c.pending.Task, got, c.want)
		}
	}
	f = scheduler.NewFleet()
	f.SetNode(numaNode("n1", coreAt(0, 0), cluster.Device{ID: "g", Type: "gpu", Numa: 1}))
	want := "waits: 1 node: not enough core free on the NUMA node of what else the task requests"
	if got := place(pinnedPending("f", 1, cluster.PinNuma, cluster.DeviceRequest{Type: "gpu"})); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// On any node, a task gets devices of one NUMA node exactly if one has them all.
func TestOneNumaNodeByAllOfThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var devices []cluster.Device
		for i := range rapid.IntRange(0, 8).Draw(t, "devices") {
			d := cluster.Device{ID: fmt.Sprintf("gpu%d", i), Type: "gpu", Numa: rapid.IntRange(-1, 2).Draw(t, "numa")}
			if rapid.Bool().Draw(t, "core") {
				d = coreAt(i, rapid.IntRange(0, 2).Draw(t, "of"))
			}
			devices = append(devices, d)
		}
		p := pinnedPending("a", rapid.IntRange(1, 3).Draw(t, "cores"), cluster.PinNuma,
			cluster.DeviceRequest{Type: "gpu", Count: rapid.IntRange(1, 2).Draw(t, "gpus")})
		fits := func(numa int) bool {
			have := map[string]int{}
			for _, d := range devices {
				if d.Numa == numa || d.Numa < 0 {
					have[d.Type]++
				}
			}
			return !slices.ContainsFunc(p.Devices, func(r cluster.DeviceRequest) bool { return have[r.Type] < r.Count })
		}
		want := fits(0) || fits(1) || fits(2)
		f := scheduler.NewFleet()
		f.SetNode(numaNode("n1", devices...))
		res := scheduler.Schedule(f, []cluster.Pending{p}, scheduler.Options{})
		if got := len(res.Placements) == 1; got != want {
			t.Fatalf("placed %v, want %v: %+v on %+v", got, want, p.Devices, devices)
		}
		if !want {
			return
		}
		numa := -1
		for _, u := range res.Placements[0].Devices {
			at := slices.IndexFunc(devices, func(d cluster.Device) bool { return d.ID == u.ID })
			if n := devices[at].Numa; n >= 0 && numa >= 0 && n != numa {
				t.Fatalf("%+v belong to several NUMA nodes: %+v", res.Placements[0].Devices, devices)
			} else if n >= 0 {
				numa = n
			}
		}
	})
}

// A task requests a whole device and a share of one with memory. On an empty node the first request would take the only
// device with memory. Where that device is used in part, both requests fit.
func TestShareBesideAWholeDevice(t *testing.T) {
	f := scheduler.NewFleet()
	f.SetNode(scheduler.Node{
		Name: "n", State: cluster.NodeReady, Executors: []string{"containerd"},
		Capacity: cluster.Demand{CPU: 4000, Memory: 8 * cluster.GiB},
		Devices: []cluster.Device{
			{ID: "d0", Type: "gpu", Memory: 16 * cluster.GiB, Numa: -1},
			{ID: "d1", Type: "gpu", Numa: -1},
		},
	})
	f.Reserve(scheduler.Reservation{
		UUID: "u", Task: "c.o.1.0", Node: "n",
		Devices: []cluster.DeviceUse{{ID: "d0", Share: 500}},
	})
	res := scheduler.Schedule(f, []cluster.Pending{{
		Task: "c.w.1.0", Attempt: 1, Priority: 500,
		Owner:      cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "w"},
		Definition: cluster.Ref{Name: "w", Version: 1},
		Devices:    []cluster.DeviceRequest{{}, {Share: 500, Memory: 4 * cluster.GiB}},
	}}, scheduler.Options{})
	if len(res.Placements) != 1 {
		t.Errorf("placed: got %+v, waiting %+v, want it on n", res.Placements, res.Waiting)
	}
}

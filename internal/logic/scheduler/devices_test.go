package scheduler_test

import (
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// A task asks for a whole device and for a share of one with memory. On an empty node the first request would take the
// only device with memory. Where that device is used in part, both requests fit.
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

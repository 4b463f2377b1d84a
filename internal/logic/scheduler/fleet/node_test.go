package fleet_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
)

func TestNodeOf(t *testing.T) {
	status := &cluster.NodeStatus{Name: "n1", Facts: cluster.Facts{
		OS: "linux", Arch: "arm64", Kernel: "6.1.0", CPU: 2000, Memory: cluster.GiB, Disk: cluster.TiB,
		Executors:     []cluster.ExecutorFact{{Name: "containerd", Version: "2.0"}, {Name: "process"}},
		ReservedPorts: []int{22},
		Labels:        cluster.Labels{"zone": "a", "rack": "7"},
	}}
	ready := &cluster.Node{Name: "n1", State: cluster.NodeReady}
	full := fleet.Node{
		Name: "n1", State: cluster.NodeReady, Arch: "arm64", OS: "linux", Kernel: "6.1.0",
		Executors:     []string{"containerd", "process"},
		Labels:        cluster.Labels{"zone": "a", "rack": "7", cluster.LabelIsolation: cluster.IsolatesImages},
		Capacity:      cluster.Demand{CPU: 2000, Memory: cluster.GiB, Disk: cluster.TiB},
		ReservedPorts: []int{22},
	}
	overridden := full
	overridden.Labels, overridden.Cordon = cluster.Labels{
		"zone": "b", "rack": "7", "gpu": "1",
		cluster.LabelIsolation: cluster.IsolatesImages,
	}, true
	reserving := &cluster.Host{Name: "n1", ReservedPorts: []cluster.PortRange{"80-82", "22"}}
	withPorts := full
	withPorts.ReservedPorts = []int{22, 80, 81, 82}
	for _, test := range []struct {
		name   string
		host   *cluster.Host
		status *cluster.NodeStatus
		want   fleet.Node
	}{
		{"agent only", nil, status, full},
		{
			"operator's labels override",
			&cluster.Host{Name: "n1", Cordon: true, Labels: cluster.Labels{"zone": "b", "gpu": "1"}}, status,
			overridden,
		},
		{"ports of the agent and the operator", reserving, status, withPorts},
		{"no status", nil, nil, fleet.Node{Name: "n1", State: cluster.NodeReady, Labels: cluster.Labels{}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, fleet.NodeOf(test.host, ready, test.status)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

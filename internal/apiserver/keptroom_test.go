package apiserver

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/cluster"
)

// TestKeptRoomOfANode checks that a read of a node shows the room that stopped services keep there, once their tasks
// hold none, and that no other node and no other service is shown.
func TestKeptRoomOfANode(t *testing.T) {
	w := newWorld(t)
	w.put(map[string]any{
		"node/n1": cluster.Node{Name: "n1", State: cluster.NodeReady, Domain: "default"},
		"node/n2": cluster.Node{Name: "n2", State: cluster.NodeReady, Domain: "default"},
	})
	const service = `{"count": 1, "stopped": true, "template": {"ports": [{"name": "b", "port": 8080}, ` +
		`{"name": "a", "port": 80}, {"name": "auto"}], "containers": [{"name": "main", "command": ["x"], ` +
		`"resources": {"cpu": "500m", "memory": "64MiB", "devices": [{"type": "gpu", "count": 2}]}}]}, "placement": {"constraints": [{"attribute": "node.name", ` +
		`"op": "=", "value": "n1"}]}`
	w.want(201, "PUT", "/v1/clusters/default/services/idle", service+`, "keep_room": true}`)
	w.want(201, "PUT", "/v1/clusters/default/services/other", service+`}`)
	got := read[api.NodeView](t, w.want(200, "GET", "/v1/nodes/n1", ""))
	want := []api.KeptRoom{{
		Owner:  &cluster.OwnerRef{Kind: cluster.KindService, Cluster: "default", Name: "idle"},
		Demand: cluster.Demand{CPU: 500, Memory: 64 * cluster.MiB}, Ports: []int{80, 8080},
		Devices: []cluster.DeviceRequest{{Type: "gpu", Count: 2}},
	}}
	if diff := cmp.Diff(want, got.KeptRoom); diff != "" || got.Reserved != (cluster.Demand{}) {
		t.Errorf("n1 reserves %+v, keeps (-want +got):\n%s", got.Reserved, diff)
	}
	(&access.Caller{Clusters: []string{"batch"}}).ShowNode(&got)
	want[0].Owner = nil
	if diff := cmp.Diff(want, got.KeptRoom); diff != "" {
		t.Errorf("to a caller of another cluster (-want +got):\n%s", diff)
	}
	if other := read[api.NodeView](t, w.want(200, "GET", "/v1/nodes/n2", "")); len(other.KeptRoom) > 0 {
		t.Errorf("n2 keeps %+v, want nothing", other.KeptRoom)
	}
}

package apiserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// paired returns a world of three nodes with two devices each. A task with one device is on each of the first two, and
// a task with both on the third.
func paired(t *testing.T, options ...func(*Config)) *world {
	w := newWorld(t, options...)
	holds := func(name string, devices int) map[string]any {
		d := definition(name, 1)
		d["containers"].([]any)[0].(map[string]any)["resources"] = map[string]any{
			"cpu": "1", "memory": "1GiB", "devices": []any{map[string]any{"type": "gpu", "count": devices}},
		}
		return d
	}
	w.want(200, "POST", "/v1/apply", manifestsOf(
		"TaskDefinition", holds("one", 1), "TaskDefinition", holds("pair", 2),
		"Service", service("web", "one@1", 1), "Service", service("other", "one@1", 1), "Service",
		service("both", "pair@1", 1),
	))
	records := map[string]any{}
	for i, placed := range []struct {
		service, definition string
		devices             []cluster.DeviceUse
	}{
		{"web", "one", []cluster.DeviceUse{{ID: "gpu0", Share: cluster.WholeDevice}}},
		{"other", "one", []cluster.DeviceUse{{ID: "gpu0", Share: cluster.WholeDevice}}},
		{"both", "pair", []cluster.DeviceUse{
			{ID: "gpu0", Share: cluster.WholeDevice},
			{ID: "gpu1", Share: cluster.WholeDevice},
		}},
	} {
		name := fmt.Sprintf("n%d", i+1)
		records["node/"+name] = cluster.Node{
			Name: name, State: cluster.NodeReady, Domain: "default", Since: noon,
			Session: 1,
		}
		records["status/"+name] = cluster.NodeStatus{
			Name: name, Session: 1, Synced: true, Registered: noon,
			Facts: cluster.Facts{
				Hostname: name, CPU: 8000, Memory: 16 * cluster.GiB, Disk: 100 * cluster.GiB,
				Executors: []cluster.ExecutorFact{{Name: "containerd"}},
				Devices:   []cluster.Device{{ID: "gpu0", Type: "gpu", Numa: -1}, {ID: "gpu1", Type: "gpu", Numa: -1}},
			},
		}
		id := cluster.ServiceTask("default", placed.service, 1, 0)
		d := desired(id, 1, cluster.KindService, cluster.Ref{Name: placed.definition, Version: 1})
		d.Node, d.Ports, d.Devices = name, nil, placed.devices
		records["state/"+name+"/"+string(id)] = d
		records["status/"+name+"/"+string(id)] = observed(d, cluster.StateRunning, cluster.HealthHealthy)
	}
	w.put(records)
	return w
}

// TestExplainByTheWorthOfDevices checks that explanations use the leader's value model or, on a server that does not
// lead, one learnt from the tasks on nodes.
func TestExplainByTheWorthOfDevices(t *testing.T) {
	var pairs, ones scheduler.Mix
	pairs.Learn(cluster.Demand{CPU: 1000, Memory: cluster.GiB}, []cluster.DeviceRequest{{Type: "gpu", Count: 2}}, 1000)
	ones.Learn(cluster.Demand{CPU: 1000, Memory: cluster.GiB}, []cluster.DeviceRequest{{Type: "gpu", Count: 1}}, 1000)
	const broken = "better now: what is left of its devices would be of more use"
	for name, c := range map[string]struct {
		worth *scheduler.ValueModel
		want  string
	}{
		"pairs are likely":       {pairs.ValueModel(), broken},
		"pairs are not likely":   {ones.ValueModel(), "worse: "},
		"this server leads none": {nil, broken},
	} {
		t.Run(name, func(t *testing.T) {
			w := paired(t, func(cfg *Config) {
				cfg.Leader.DeviceValueModel = func(string) *scheduler.ValueModel { return c.worth }
			})
			x := w.explain("/v1/tasks/default.web.1.0")
			if x.Place == nil || len(x.Place.Others) != 1 {
				t.Fatalf("%+v", x.Place)
			}
			if got := x.Place.Others[0]; got.Node != "n2" || !strings.HasPrefix(got.Text, c.want) {
				t.Errorf("got %+v, want of n2 %q", got, c.want)
			}
		})
	}
	w := paired(t) // nor is anybody asked
	if x := w.explain("/v1/tasks/default.web.1.0"); x.Place == nil || len(x.Place.Others) != 1 ||
		x.Place.Others[0].Text != broken {
		t.Errorf("%+v", x.Place)
	}
}

// TestExplainJobOfABoundCluster checks that explanations apply the constraints of the cluster, as the control plane
// does.
func TestExplainJobOfABoundCluster(t *testing.T) {
	w := uneven(t)
	only := []any{map[string]any{"attribute": "label.zone", "value": "c"}}
	w.want(201, "PUT", "/v1/clusters/bound", map[string]any{"name": "bound", "constraints": only})
	w.want(201, "PUT", "/v1/clusters/bound/jobs/sum", job("sum", "work@1", 1))
	x := read[api.Explanation](t, w.want(200, "GET", "/v1/tasks/bound.sum.1.work.0/explain?node=n2", nil))
	const want = "label.zone = c not met"
	if x.Place == nil || len(x.Place.Refusals) != 1 || x.Place.Refusals[0] != "3 nodes: "+want {
		t.Fatalf("%+v", x.Place)
	}
	if a := x.Place.Asked; a == nil || a.Takes || len(a.Against) != 1 || a.Against[0] != want {
		t.Errorf("asked about n2: %+v", a)
	}
}

package apiserver

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// TestAddresses reads the list of healthy addresses. It leaves out tasks with a stop that needs no permit, and tasks on
// a silent node unless all nodes are silent.
func TestAddresses(t *testing.T) {
	w := newWorld(t)
	w.want(200, "POST", "/v1/apply",
		manifestsOf("TaskDefinition", definition("web", 1), "Service", service("web", "web@1", 5)))
	web := cluster.Ref{Name: "web", Version: 1}
	records := map[string]any{}
	node := func(name string, state cluster.NodeState) {
		records["node/"+name] = cluster.Node{Name: name, State: state, Domain: "default"}
		records["status/"+name] = cluster.NodeStatus{Name: name, Facts: cluster.Facts{Address: "192.0.2." + name[1:]}}
	}
	ask := ""
	put := func(id cluster.TaskID, on string, stop *cluster.Stop, health cluster.Health) {
		d := desired(id, 1, cluster.KindService, web)
		d.Node, d.Stop = on, stop
		o := observed(d, cluster.StateRunning, health)
		o.Ask = ask
		records["state/"+on+"/"+string(id)], records["status/"+on+"/"+string(id)] = d, o
	}
	node("n1", cluster.NodeReady)
	node("n2", cluster.NodeSuspect)
	node("n3", cluster.NodeDown)
	put("default.web.1.0", "n1", nil, cluster.HealthHealthy)
	put("default.web.1.1", "n1", &cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonRollout},
		cluster.HealthHealthy)
	ask = "1.1"
	put("default.web.1.5", "n1",
		&cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonRollout, Permit: "1.1"},
		cluster.HealthHealthy)
	put("default.web.1.6", "n1", &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonDrain},
		cluster.HealthHealthy)
	// no permit yet
	put("default.web.1.7", "n1", &cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonRollout},
		cluster.HealthHealthy)
	ask = ""
	put("default.web.1.2", "n1", nil, cluster.HealthFailing)
	put("default.web.1.3", "n2", nil, cluster.HealthHealthy)
	put("default.web.1.4", "n3", nil, cluster.HealthHealthy)
	w.put(records)

	tasks := func() (got []cluster.TaskID) {
		var page api.Page[api.Address]
		if err := json.Unmarshal(w.want(200, "GET", "/v1/clusters/default/services/web/addresses", nil).body,
			&page); err != nil {
			t.Fatal(err)
		}
		for _, a := range page.Items {
			if want := "192.0.2." + a.Node[1:]; a.Address != want || a.Ports["http"] != 30001 || a.Definition != web {
				t.Errorf("%s is reached at %s %v and runs %s", a.Task, a.Address, a.Ports, a.Definition)
			}
			got = append(got, a.Task)
		}
		return got
	}
	if diff := cmp.Diff([]cluster.TaskID{"default.web.1.0", "default.web.1.7"}, tasks()); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	w.put(map[string]any{"node/n1": cluster.Node{Name: "n1", State: cluster.NodeSuspect, Domain: "default"}})
	if diff := cmp.Diff([]cluster.TaskID{"default.web.1.0", "default.web.1.3", "default.web.1.7"},
		tasks()); diff != "" {
		t.Errorf("addresses with all nodes silent (-want +got):\n%s", diff)
	}
	w.want(404, "GET", "/v1/clusters/default/services/nobody/addresses", nil)
}

// Pages of addresses hold each task once, although the tasks' ids are not in the order of their numbers.
func TestPagesOfAddresses(t *testing.T) {
	w := newWorld(t)
	w.want(200, "POST", "/v1/apply",
		manifestsOf("TaskDefinition", definition("web", 1), "Service", service("web", "web@1", 12)))
	records := map[string]any{
		"node/n1":   cluster.Node{Name: "n1", State: cluster.NodeReady, Domain: "default"},
		"status/n1": cluster.NodeStatus{Name: "n1"},
	}
	for i := range 12 {
		d := desired(cluster.ServiceTask("default", "web", 1, i), 1, cluster.KindService,
			cluster.Ref{Name: "web", Version: 1})
		d.Node = "n1"
		records["state/n1/"+string(d.Task)], records["status/n1/"+string(d.Task)] = d,
			observed(d, cluster.StateRunning, cluster.HealthHealthy)
	}
	w.put(records)
	seen := map[cluster.TaskID]int{}
	for next, pages := "", 0; pages == 0 || next != ""; pages++ {
		var page api.Page[api.Address]
		body := w.want(200, "GET", "/v1/clusters/default/services/web/addresses?limit=3&cursor="+next, nil).body
		if err := json.Unmarshal(body, &page); err != nil || pages > 12 {
			t.Fatal(err, pages)
		}
		for _, a := range page.Items {
			seen[a.Task]++
		}
		next = page.Next
	}
	for i := range 12 {
		if n := seen[cluster.ServiceTask("default", "web", 1, i)]; n != 1 {
			t.Errorf("task %d is on the pages %d times", i, n)
		}
	}
}

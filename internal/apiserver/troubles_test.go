package apiserver

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// TestTroubles: the server lists what is not as it should be with cause and next step, and finds the troubles of one
// object by kind, cluster and name.
func TestTroubles(t *testing.T) {
	s := newWorld(t)
	s.want(201, "PUT", "/v1/definitions/web/1", definition("web", 1))
	s.want(201, "PUT", "/v1/clusters/default/services/web", service("web", "web@1", 2))
	s.want(201, "PUT", "/v1/clusters/default/services/idle", service("idle", "web@1", 0))
	s.put(map[string]any{
		"status/n1": cluster.NodeStatus{Name: "n1"},
		"node/n1": cluster.Node{
			Name: "n1", State: cluster.NodeDown, Domain: "default", Reason: "silent for 3m", Since: time.Now(),
		},
	})
	for _, id := range []cluster.TaskID{"default.web.1.0", "default.web.1.1"} {
		s.why.set(cluster.Waiting{
			Task: id, Sentence: "no node has room",
			Refusals: []cluster.RefusalCount{{Refusal: cluster.Refusal{Code: cluster.ReasonNoNodes}}},
		})
	}
	node := api.Trouble{
		Object: "node/n1", State: "down", Cause: "silent for 3m", Next: "berth node status n1",
	}
	web := api.Trouble{
		Object: "default/service/web", State: "starting",
		Cause: "0/2 healthy; 2 waiting for a node; no node has room", Next: "berth node ls",
	}
	task := api.Trouble{
		Object: "task/default.web.1.0", State: "pending", Cause: "default.web.1.0: no node has room",
		Next: "berth explain default.web.1.0",
	}
	for query, want := range map[string][]api.Trouble{
		"":                                       {node, web},
		"?kind=node":                             {node},
		"?kind=service":                          {web},
		"?kind=service&cluster=default&name=web": {web},
		"?kind=service&name=idle":                {},
		"?kind=node&name=n2":                     {},
		"?cluster=other&kind=service":            {},
		"?kind=task&name=default.web.1.0":        {task},
		"?kind=task&name=default.web.1.7":        {},
	} {
		got := read[api.Page[api.Trouble]](t, s.want(200, "GET", "/v1/troubles"+query, nil))
		if diff := cmp.Diff(want, got.Items); diff != "" {
			t.Errorf("%q (-want +got):\n%s", query, diff)
		}
	}
	s.want(400, "GET", "/v1/troubles?kind=task", nil)
	s.want(400, "GET", "/v1/troubles?kind=pod", nil)
}

// TestListsByLabels: lists answer with the elements whose labels meet a selector, page by page. A broken selector is
// refused, and labels that a caller does not see select nothing.
func TestListsByLabels(t *testing.T) {
	s := newWorld(t)
	labelled := func(labels map[string]string, object map[string]any) map[string]any {
		object["labels"] = labels
		return object
	}
	web := definition("web", 1)
	web["ports"] = []map[string]any{{"name": "http"}}
	shop := func(tier string) map[string]string { return map[string]string{"app": "shop", "tier": tier} }
	s.want(200, "POST", "/v1/apply", manifestsOf(
		"Cluster", map[string]any{"name": "red"},
		"TaskDefinition", labelled(shop("back"), web),
		"Service", labelled(shop("front"), service("web", "web@1", 2)),
		"Service", labelled(shop("back"), service("api", "web@1", 1)),
		"Service", service("other", "web@1", 3),
		"Job", labelled(shop("back"), job("sum", "web@1", 1)),
		"Endpoint", map[string]any{
			"name": "shop", "service": "web", "port": "http", "labels": map[string]string{"app": "shop"},
		}))
	s.put(map[string]any{
		"status/n1": cluster.NodeStatus{Name: "n1"}, "status/n2": cluster.NodeStatus{Name: "n2"},
		"host/n1": cluster.Host{Name: "n1", Domain: "default", Labels: cluster.Labels{"rack": "a"}},
	})
	for path, want := range map[string]int{
		"/v1/services?selector=app=shop": 2, "/v1/services?selector=app=shop,tier!=back": 1,
		"/v1/services?selector=!app": 1, "/v1/services?selector=": 3, "/v1/services?selector=app&name=api": 1,
		"/v1/clusters/default/services?selector=tier": 2, "/v1/clusters/red/services?selector=!tier": 0,
		"/v1/jobs?selector=tier=back": 1, "/v1/jobs?selector=tier=front": 0, "/v1/crons?selector=app": 0,
		"/v1/endpoints?selector=app=shop": 1, "/v1/endpoints?selector=app=bank": 0,
		"/v1/definitions?selector=tier=back": 1, "/v1/definitions/web?selector=tier=front": 0,
		"/v1/nodes?selector=rack=a": 1, "/v1/nodes?selector=rack!=a": 1,
		"/v1/tasks?selector=app=shop": 4, "/v1/tasks?selector=tier=front": 2, "/v1/tasks?selector=!app": 3,
		"/v1/tasks?selector=tier=back&service=api": 1,
	} {
		got := read[api.Page[map[string]any]](t, s.want(200, "GET", path, nil))
		if len(got.Items) != want {
			t.Errorf("%s: %d elements, want %d", path, len(got.Items), want)
		}
	}
	first := read[api.Page[api.ServiceView]](t, s.want(200, "GET", "/v1/services?selector=app&limit=1", nil))
	second := read[api.Page[api.ServiceView]](t,
		s.want(200, "GET", "/v1/services?selector=app&limit=1&cursor="+first.Next, nil))
	if first.Items[0].Name != "api" || second.Items[0].Name != "web" || second.Next != "" {
		t.Errorf("pages: %v and %v", first, second)
	}
	for _, path := range []string{
		"/v1/services", "/v1/jobs", "/v1/crons", "/v1/endpoints", "/v1/nodes", "/v1/definitions", "/v1/tasks",
	} {
		got := s.want(400, "GET", path+"?selector=app,a%20b", nil)
		if !strings.Contains(string(got.body), `\"a b\" is not a label selector: want key=value`) {
			t.Errorf("%s: %s", path, got.body)
		}
	}
	red := "Bearer " + read[api.TokenReply](t, s.want(201, "POST", "/v1/tokens",
		map[string]any{"name": "red", "role": "viewer", "clusters": []string{"red"}})).Token
	for _, path := range []string{"/v1/services", "/v1/tasks", "/v1/jobs", "/v1/definitions", "/v1/endpoints"} {
		got := read[api.Page[map[string]any]](t,
			s.want(200, "GET", path+"?selector=app=shop", nil, "Authorization", red))
		if len(got.Items) != 0 {
			t.Errorf("%s: a viewer of cluster red gets %v", path, got.Items)
		}
	}
}

// TestListsByName: lists of services, jobs, crons and nodes answer with the elements of one name.
func TestListsByName(t *testing.T) {
	s := newWorld(t)
	s.want(200, "POST", "/v1/apply", manifestsOf("Cluster", map[string]any{"name": "red"}))
	s.want(201, "PUT", "/v1/definitions/web/1", definition("web", 1))
	for _, path := range []string{"default/services/web", "default/services/api", "red/services/web"} {
		s.want(201, "PUT", "/v1/clusters/"+path, service(path[len(path)-3:], "web@1", 1))
	}
	s.put(map[string]any{
		"status/n1": cluster.NodeStatus{Name: "n1"}, "status/n2": cluster.NodeStatus{Name: "n2"},
	})
	for path, want := range map[string]int{
		"/v1/services?name=web": 2, "/v1/services?name=none": 0, "/v1/clusters/red/services?name=web": 1,
		"/v1/nodes?name=n1": 1, "/v1/nodes?name=": 2, "/v1/jobs?name=web": 0, "/v1/crons?name=web": 0,
	} {
		got := read[api.Page[map[string]any]](t, s.want(200, "GET", path, nil))
		if len(got.Items) != want {
			t.Errorf("%s: %d elements, want %d", path, len(got.Items), want)
		}
	}
}

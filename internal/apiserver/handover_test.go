package apiserver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// moving fills a world with a node that runs a service, and returns the objects that move with it.
func moving(t *testing.T, w *world) {
	t.Helper()
	w.put(map[string]any{
		"node/n1":      cluster.Node{Name: "n1", State: cluster.NodeReady, Domain: "default", Generation: 4},
		"cluster/prod": cluster.Cluster{Name: "prod", Permissions: cluster.Permissions()},
	})
	w.want(200, "POST", "/v1/apply", api.ApplyRequest{Objects: []api.Object{
		object(cluster.KindTaskDefinition, `{"name": "web", "version": 3, "containers": [{"name": "main",
			"image": "a.example/web@sha256:`+strings.Repeat("a", 64)+`", "resources": {"cpu": "10m", "memory": "16MiB"}}],
			"ports": [{"name": "http"}]}`),
		object(cluster.KindService, `{"cluster": "prod", "name": "web", "count": 1, "definition": "web@3"}`),
		object(cluster.KindEndpoint, `{"cluster": "prod", "name": "front", "service": "web", "port": "http"}`),
		object(cluster.KindCron, `{"cluster": "prod", "name": "nightly", "schedules": ["@daily"],
			"job": {"steps": [{"name": "s", "count": 1, "definition": "web@3"}]}}`),
	}})
	w.want(200, "POST", "/v1/clusters/prod/services/web/restart", nil) // generation 2
	running := attemptOf("prod.web.2.0", "u1", "n1")
	w.put(running)
	w.put(map[string]any{"rollout/prod/web": cluster.Rollout{Version: cluster.Version{
		Generation: 2, Definition: cluster.Ref{Name: "web", Version: 3}, State: cluster.RolloutComplete,
	}}})
}

func object(kind cluster.Kind, spec string) api.Object {
	return api.Object{Kind: kind, Spec: []byte(spec)}
}

// attemptOf returns the records of an attempt that runs.
func attemptOf(task cluster.TaskID, uuid, node string) map[string]any {
	p, _ := task.Parts()
	return map[string]any{
		"state/" + node + "/" + string(task): cluster.Desired{
			Task: task, Attempt: 1, UUID: uuid, Node: node, Definition: cluster.Ref{Name: "web", Version: 3},
			Owner: cluster.OwnerRef{Kind: cluster.KindService, Cluster: p.Cluster, Name: p.Owner},
		},
		"status/" + node + "/" + string(task): cluster.Observed{
			Task: task, Attempt: 1, UUID: uuid, Node: node, State: cluster.StateRunning, Session: 1,
			Definition: cluster.Ref{Name: "web", Version: 3},
		},
	}
}

// The objects of a node move from one store to another with their generations and versions, and back.
func TestNodeMovesBetweenStores(t *testing.T) {
	from, to := newWorld(t), newWorld(t)
	moving(t, from)
	shown := read[api.NodeReleaseReply](t, from.want(200, "POST", "/v1/nodes/n1/release",
		api.NodeReleaseRequest{DryRun: true}))
	o := shown.Objects
	if shown.Released || o.Tasks != 1 || o.Generation != 4 || len(o.Services) != 1 || len(o.Crons) != 1 ||
		len(o.Endpoints) != 1 || len(o.Definitions) != 1 || len(o.Clusters) != 1 {
		t.Fatalf("the dry run shows %+v", shown)
	}

	// adoption
	adopt := api.NodeAdoptRequest{Domain: "edge", DryRun: true, Objects: o}
	r := to.call("POST", "/v1/nodes/n1/adopt", adopt)
	if r.status != 422 && r.status != 409 {
		t.Errorf("an unknown domain: status %d, want a refusal", r.status)
	}
	to.want(200, "POST", "/v1/apply", api.ApplyRequest{Objects: []api.Object{
		object(cluster.KindDomain, `{"name": "edge"}`),
	}})
	to.want(200, "POST", "/v1/nodes/n1/adopt", adopt)
	if _, ok := to.tables.Snapshot().Service("prod", "web"); ok {
		t.Error("a dry run wrote the service")
	}
	adopt.DryRun = false
	for range 2 { // the second changes nothing
		to.want(200, "POST", "/v1/nodes/n1/adopt", adopt)
		svc, _ := to.tables.Snapshot().Service("prod", "web")
		host, _ := to.host("n1")
		c, _ := to.tables.Snapshot().Cluster("prod")
		cron, _ := to.tables.Snapshot().Cron("prod", "nightly")
		bound := []cluster.Constraint{{Attribute: "node.name", Op: cluster.OpEqual, Value: "n1"}}
		if svc.Value.Generation != 2 || svc.Value.Definition.Version != 3 ||
			!cmp.Equal(svc.Value.Placement.Constraints, bound) {
			t.Errorf("the adopted service is %+v", svc.Value)
		}
		if host.Generation != 5 || host.Domain != "edge" || c.Value.Domain != "edge" ||
			!cmp.Equal(cron.Value.Job.Steps[0].Placement.Constraints, bound) {
			t.Errorf("the node is %+v, its cluster %+v, its cron %+v", host, c.Value, cron.Value)
		}
	}

	// release
	wrong := map[string]uint64{"Service/prod/web": 1}
	from.want(409, "POST", "/v1/nodes/n1/release", api.NodeReleaseRequest{Revisions: wrong})
	for range 2 {
		got := read[api.NodeReleaseReply](t, from.want(200, "POST", "/v1/nodes/n1/release",
			api.NodeReleaseRequest{Revisions: o.Revisions}))
		if !got.Released {
			t.Error("the node is not released")
		}
		svc, _ := from.tables.Snapshot().Service("prod", "web")
		host, _ := from.host("n1")
		_, cron := from.tables.Snapshot().Cron("prod", "nightly")
		_, endpoint := from.tables.Snapshot().Endpoint("prod", "front")
		if !svc.Value.Deleted || !host.Gone || host.Released != 4 || cron || endpoint {
			t.Errorf("after the release: service %+v, node %+v, cron %v, endpoint %v", svc.Value, host, cron, endpoint)
		}
	}

	// The node returns to the first store once that has no record of it.
	back := api.NodeAdoptRequest{Objects: o}
	back.Objects.Generation = 5
	if r := from.call("POST", "/v1/nodes/n1/adopt", back); !strings.Contains(r.faults(), "try again") {
		t.Errorf("an adoption while records remain: status %d: %s", r.status, r.faults())
	}
	from.want(409, "POST", "/v1/nodes/n1/forget", api.NodeAction{Force: true})
	from.put(map[string]any{
		"node/n1": nil, "state/n1/prod.web.2.0": nil, "status/n1/prod.web.2.0": nil, "service/prod/web": nil,
		"rollout/prod/web": nil,
	})
	from.want(200, "POST", "/v1/nodes/n1/adopt", back)
	if host, _ := from.host("n1"); host.Generation != 6 || host.Released != 0 || host.Gone {
		t.Errorf("after the return the node is %+v", host)
	}

	// The mark of a released node stays until the operator forgets the node.
	to.want(200, "POST", "/v1/nodes/n1/release", api.NodeReleaseRequest{Revisions: read[api.NodeReleaseReply](t,
		to.want(200, "POST", "/v1/nodes/n1/release", api.NodeReleaseRequest{DryRun: true})).Objects.Revisions})
	to.want(200, "POST", "/v1/nodes/n1/cordon", nil)
	if host, _ := to.host("n1"); host.Released == 0 {
		t.Error("another setting removed the mark of the release")
	}
	to.want(200, "POST", "/v1/nodes/n1/forget", nil)
	if host, ok := to.host("n1"); ok {
		t.Errorf("the forgotten node is %+v", host)
	}
}

// All that is in the way of a release is told at once, and nothing is changed.
func TestReleaseTellsAllConflicts(t *testing.T) {
	w := newWorld(t)
	moving(t, w)
	w.put(map[string]any{
		"node/n2":          cluster.Node{Name: "n2", State: cluster.NodeReady, Domain: "default", Generation: 1},
		"rollout/prod/web": cluster.Rollout{Version: cluster.Version{Generation: 2, State: cluster.RolloutRolling}},
		"host/n1":          cluster.Host{Name: "n1", Drain: &cluster.Drain{Since: time.Now()}},
	})
	w.want(200, "POST", "/v1/apply", api.ApplyRequest{Objects: []api.Object{
		object(cluster.KindService, `{"cluster": "prod", "name": "web", "count": 1, "definition": "web@3",
			"placement": {"constraints": [{"attribute": "node.name", "value": "n1"}]}}`),
		object(cluster.KindService, `{"cluster": "prod", "name": "wide", "count": 1, "definition": "web@3"}`),
		object(cluster.KindJob, `{"cluster": "prod", "name": "once", "steps": [{"name": "s", "count": 1,
			"definition": "web@3", "placement": {"constraints": [{"attribute": "node.name", "value": "n1"}]}}]}`),
	}})
	w.put(attemptOf("prod.wide.1.0", "u2", "n1"))
	w.put(attemptOf("prod.web.2.1", "u3", "n2"))
	ask := api.NodeReleaseRequest{DryRun: true}
	r := w.want(409, "POST", "/v1/nodes/n1/release", ask)
	for _, want := range []string{
		"being drained", "rollout in progress", "task on node n2",
		"service prod/wide: has a task on the node and may run", "job prod/once: has not ended",
	} {
		if !strings.Contains(r.faults(), want) {
			t.Errorf("%q is missing in: %s", want, r.faults())
		}
	}
	if host, _ := w.host("n1"); host.Released != 0 {
		t.Error("the node was released")
	}
	w.want(404, "POST", "/v1/nodes/n9/release", ask)
}

// All that is in the way of an adoption is told at once, and nothing is changed.
func TestAdoptionTellsAllConflicts(t *testing.T) {
	from, to := newWorld(t), newWorld(t)
	moving(t, from)
	o := read[api.NodeReleaseReply](t, from.want(200, "POST", "/v1/nodes/n1/release",
		api.NodeReleaseRequest{DryRun: true})).Objects
	moving(t, to)
	to.want(200, "POST", "/v1/apply", api.ApplyRequest{Objects: []api.Object{
		object(cluster.KindDomain, `{"name": "edge"}`),
	}})
	o.Definitions[0].Containers[0].Resources.CPU++
	r := to.want(409, "POST", "/v1/nodes/n1/adopt", api.NodeAdoptRequest{Domain: "edge", Objects: o})
	for _, want := range []string{
		"name of a node of these servers already", "is in the domain default here", "services[0]",
		"definitions[0].containers[0].resources.cpu", "crons[0]",
	} {
		if !strings.Contains(r.faults(), want) {
			t.Errorf("%q is missing in: %s", want, r.faults())
		}
	}
	if _, ok := to.host("n1"); ok {
		t.Error("the refused adoption wrote the settings of the node")
	}
	if r := to.call("POST", "/v1/nodes/n2/adopt", api.NodeAdoptRequest{Objects: o}); r.status != 422 {
		t.Errorf("objects of another node: %s", fmt.Sprint(r.status, string(r.body)))
	}
}

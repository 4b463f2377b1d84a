package apiserver

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func desired(id cluster.TaskID, attempt int, kind cluster.Kind, ref cluster.Ref) cluster.Desired {
	p, _ := id.Parts()
	return cluster.Desired{
		Task: id, Attempt: attempt, UUID: fmt.Sprintf("%s-%d", id, attempt), Node: "n1",
		Owner: cluster.OwnerRef{Kind: kind, Cluster: p.Cluster, Name: p.Owner}, Definition: ref, Placed: noon,
		Ports: map[string]int{"http": 30001},
	}
}

func observed(d cluster.Desired, state cluster.State, health cluster.Health) cluster.Observed {
	return cluster.Observed{
		Task: d.Task, Attempt: d.Attempt, UUID: d.UUID, Node: d.Node, Session: 1, State: state, Health: health,
		Started: noon.Add(time.Second),
	}
}

func outcome(d cluster.Desired, state cluster.State, message string) cluster.Outcome {
	return cluster.Outcome{
		Task: d.Task, Attempt: d.Attempt, UUID: d.UUID, Node: d.Node, Owner: d.Owner, Definition: d.Definition,
		State: state, Reason: cluster.ReasonExit, Message: message, Started: true, Placed: noon,
		Begun: noon.Add(time.Second),
		Ended: time.Now().UTC(), LogTail: "first\nlast\n",
	}
}

// busy returns a world with a service of three tasks and a job of three tasks. One task of the service runs, one failed
// and one is pending. One task of the job succeeded, one failed and is tried again, and one runs.
func busy(t *testing.T) *world {
	w := newWorld(t)
	w.want(200, "POST", "/v1/apply", manifestsOf(
		"TaskDefinition", map[string]any{
			"name": "web", "version": 1, "ports": []any{map[string]any{"name": "http"}}, "disk": "1GiB",
			"containers": []any{map[string]any{
				"name": "main", "image": "a/web:1",
				"resources": map[string]any{"cpu": "500m", "memory": "64MiB"},
			}},
		},
		"TaskDefinition", definition("work", 1),
		"Service", service("web", "web@1", 3),
		"Job", map[string]any{
			"name":  "sum",
			"steps": []any{map[string]any{"name": "add", "definition": "work@1", "count": 3, "retries": 2}},
		},
	))
	web, work := cluster.Ref{Name: "web", Version: 1}, cluster.Ref{Name: "work", Version: 1}
	run := desired("default.web.1.0", 1, cluster.KindService, web)
	fell := desired("default.web.1.1", 1, cluster.KindService, web)
	good := desired("default.sum.1.add.0", 1, cluster.KindJob, work)
	bad := desired("default.sum.1.add.1", 1, cluster.KindJob, work)
	going := desired("default.sum.1.add.2", 2, cluster.KindJob, work)
	before := desired("default.sum.1.add.2", 1, cluster.KindJob, work)
	w.put(map[string]any{
		"status/n1": cluster.NodeStatus{Name: "n1", Session: 1, Registered: noon, Facts: cluster.Facts{
			Hostname: "n1", Address: "192.0.2.1", CPU: 4000, Memory: 8 * cluster.GiB, Disk: 100 * cluster.GiB,
			Labels: cluster.Labels{"rack": "a", "kind": "small"},
		}},
		"node/n1": cluster.Node{
			Name: "n1", State: cluster.NodeReady, Domain: "default",
			Since: noon, Session: 1,
		},
		"host/n2":                       cluster.Host{Name: "n2", Domain: "default"},
		"state/n1/default.web.1.0":      run,
		"status/n1/default.web.1.0":     observed(run, cluster.StateRunning, cluster.HealthHealthy),
		"attempt/default.web.1.1/1":     outcome(fell, cluster.StateFailed, "exit code 3"),
		"attempt/default.sum.1.add.0/1": outcome(good, cluster.StateSucceeded, ""),
		"attempt/default.sum.1.add.1/1": outcome(bad, cluster.StateFailed, "exit code 1"),
		"attempt/default.sum.1.add.2/1": outcome(before, cluster.StateLost, "node n0 fell silent"),
		"state/n1/default.sum.1.add.2":  going,
		"status/n1/default.sum.1.add.2": observed(going, cluster.StatePreparing, ""),
		"leader/default":                cluster.Leader{Epoch: 1, Holder: "s1"},
		"state/default.sum.1.add.2":     json.RawMessage("true"),
		"plan/00000000000000000001":     cluster.PlanRecord{Seq: 1},
		"event/e1":                      batch("e1", "task.failed"),
		"unknown/thing":                 map[string]any{},
	})
	w.why.mu.Lock()
	w.why.all["default.web.1.2"] = cluster.Waiting{
		Sentence: "1 node: memory short by 200 MiB",
		Refusals: []cluster.RefusalCount{{Refusal: cluster.Refusal{Code: cluster.ReasonShortMemory}, Nodes: 1}},
	}
	w.why.mu.Unlock()
	return w
}

func TestTaskViews(t *testing.T) {
	w := busy(t)
	tests := []struct{ query, want string }{
		{"", `
default.sum.1.add.0/1 succeeded on n1
default.sum.1.add.1/0 pending: attempt 1 failed: exit code 1
default.sum.1.add.2/2 preparing on n1
default.web.1.0/1 running on n1
default.web.1.1/0 pending: attempt 1 failed: exit code 3
default.web.1.2/0 pending: 1 node: memory short by 200 MiB
`},
		{"?all", `
default.sum.1.add.0/1 succeeded on n1
default.sum.1.add.1/0 pending: attempt 1 failed: exit code 1
default.sum.1.add.1/1 failed on n1: exit code 1
default.sum.1.add.2/1 lost on n1: node n0 fell silent
default.sum.1.add.2/2 preparing on n1
default.web.1.0/1 running on n1
default.web.1.1/0 pending: attempt 1 failed: exit code 3
default.web.1.1/1 failed on n1: exit code 3
default.web.1.2/0 pending: 1 node: memory short by 200 MiB
`},
		{"?service=web&state=pending", `
default.web.1.1/0 pending: attempt 1 failed: exit code 3
default.web.1.2/0 pending: 1 node: memory short by 200 MiB
`},
		{"?cluster=default&job=sum&state=succeeded", "\ndefault.sum.1.add.0/1 succeeded on n1\n"},
		{"?node=n1", `
default.sum.1.add.0/1 succeeded on n1
default.sum.1.add.2/2 preparing on n1
default.web.1.0/1 running on n1
`},
		{"?cluster=blue", "\n"},
		{"?node=n2", "\n"},
	}
	for _, test := range tests {
		t.Run(test.query, func(t *testing.T) {
			got := "\n"
			for _, v := range read[api.Page[api.TaskView]](t, w.want(200, "GET", "/v1/tasks"+test.query, nil)).Items {
				got += fmt.Sprintf("%s/%d %s", v.ID, v.Attempt, v.State)
				if v.Node != "" {
					got += " on " + v.Node
				}
				if v.Message != "" {
					got += ": " + v.Message
				}
				got += "\n"
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOneTask(t *testing.T) {
	w := busy(t)
	v := read[api.TaskView](t, w.want(200, "GET", "/v1/tasks/default.web.1.0", nil))
	want := api.TaskView{
		ID: "default.web.1.0", Attempt: 1, UUID: "default.web.1.0-1", Generation: 1, Index: 0,
		Owner:      cluster.OwnerRef{Kind: cluster.KindService, Cluster: "default", Name: "web"},
		Definition: cluster.Ref{Name: "web", Version: 1}, Node: "n1", Address: "192.0.2.1",
		Ports: map[string]int{"http": 30001}, State: cluster.StateRunning, Health: cluster.HealthHealthy,
		Placed: noon, Started: noon.Add(time.Second),
	}
	if diff := cmp.Diff(want, v); diff != "" {
		t.Error(diff)
	}
	v = read[api.TaskView](t, w.want(200, "GET", "/v1/tasks/default.web.1.2", nil))
	if v.State != cluster.StatePending || v.Reason != cluster.ReasonShortMemory {
		t.Errorf("%+v", v)
	}
	v = read[api.TaskView](t, w.want(200, "GET", "/v1/tasks/default.sum.1.add.1?attempt=1", nil))
	if v.State != cluster.StateFailed || v.LogTail == "" || v.Step != "add" {
		t.Errorf("%+v", v)
	}
	w.want(404, "GET", "/v1/tasks/default.web.1.9", nil)
	w.want(404, "GET", "/v1/tasks/default.web.1.0?attempt=7", nil)
}

func TestStatuses(t *testing.T) {
	w := busy(t)
	svc := read[api.ServiceView](t, w.want(200, "GET", "/v1/clusters/default/services/web", nil)).Status
	if svc.Desired != 3 || svc.Running != 1 || svc.Healthy != 1 || svc.Waiting != 2 || svc.State != "degraded" {
		t.Errorf("%+v", svc)
	}
	if !strings.Contains(svc.Message, "exit code 3") || !strings.Contains(svc.Message, "memory short by 200 MiB") {
		t.Errorf("message: %s", svc.Message)
	}
	sum := read[api.JobView](t, w.want(200, "GET", "/v1/clusters/default/jobs/sum", nil)).Status
	if sum.Total != 3 || sum.Succeeded != 1 || sum.Running != 1 || sum.Pending != 1 || sum.State != "running" {
		t.Errorf("%+v", sum)
	}
}

func TestNodes(t *testing.T) {
	w := busy(t)
	page := read[api.Page[api.NodeView]](t, w.want(200, "GET", "/v1/nodes", nil))
	if len(page.Items) != 2 || page.Items[1].State != "absent" || page.Items[1].Reason == "" {
		t.Fatalf("%+v", page.Items)
	}
	n := page.Items[0]
	if n.Name != "n1" || n.State != cluster.NodeReady || n.Tasks != 2 || n.Total.CPU != 4000 ||
		n.Reserved != (cluster.Demand{CPU: 500, Memory: 64 * cluster.MiB, Disk: cluster.GiB}) {
		t.Errorf("%+v", n)
	}
	n = read[api.NodeView](t,
		w.want(200, "PUT", "/v1/nodes/n1", `{"cordon": true, "labels": {"rack": "b"}, "generation": 7}`))
	if !n.Cordon || n.Labels["rack"] != "b" || n.Labels["kind"] != "small" || n.Facts.Labels["rack"] != "a" {
		t.Errorf("%+v", n)
	}
	again := w.want(200, "PUT", "/v1/nodes/n1", `{"cordon": true, "labels": {"rack": "b"}}`)
	if v := read[api.NodeView](t, again); v.Revision != n.Revision {
		t.Error("an identical put wrote")
	}
	host, _ := w.tables.Snapshot().Host("n1")
	if host.Value.Generation != 0 {
		t.Error("the generation of the ownership was taken from outside")
	}
	w.want(404, "GET", "/v1/nodes/n3", nil)
	w.want(400, "GET", "/v1/nodes/N3", nil)
}

func TestDeletedOwnerHasNoPendingTasks(t *testing.T) {
	w := busy(t)
	w.want(202, "DELETE", "/v1/clusters/default/services/web", nil)
	v := read[api.ServiceView](t, w.want(200, "GET", "/v1/clusters/default/services/web", nil))
	if v.Status.State != "deleting" {
		t.Errorf("%+v", v.Status)
	}
	for _, v := range read[api.Page[api.TaskView]](t, w.want(200, "GET", "/v1/tasks?service=web", nil)).Items {
		if v.State == cluster.StatePending {
			t.Errorf("%s waits", v.ID)
		}
	}
}

// TestTasksOfAVersionThatCameBack checks that after an undo the tasks of the returned version wait like those of the
// newest, each index once.
func TestTasksOfAVersionThatCameBack(t *testing.T) {
	w := rolled(t)
	v1 := cluster.Ref{Name: "web", Version: 1}
	fell := func(task cluster.TaskID) cluster.Outcome {
		return outcome(desired(task, 1, cluster.KindService, v1), cluster.StateFailed, "exit code 3")
	}
	w.put(map[string]any{
		"attempt/default.web.1.1/1": fell("default.web.1.1"),
		"attempt/default.web.1.9/1": fell("default.web.1.9"),
	})
	w.runs("default.web.1.0", 1, true)
	w.runs("default.web.1.2", 1, true)
	w.want(200, "POST", rolloutPath+"/undo", nil)
	waiting := map[int]int{}
	for _, v := range read[api.Page[api.TaskView]](t,
		w.want(200, "GET", "/v1/tasks?service=web&state=pending", nil)).Items {
		waiting[v.Index]++
		if v.Definition != v1 {
			t.Errorf("%s waits for %s", v.ID, v.Definition)
		}
	}
	if diff := cmp.Diff(map[int]int{1: 1}, waiting); diff != "" {
		t.Errorf("tasks that wait, by place (-want +got):\n%s", diff)
	}
}

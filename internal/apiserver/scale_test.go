package apiserver

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

const scalePath = webPath + "/scale"

// scaled returns a world with a service web whose count follows its CPU usage between two and eight.
func scaled(count any) map[string]any {
	svc := map[string]any{"name": "web", "definition": "web@1", "scaling": map[string]any{
		"min": 2, "max": 8, "targets": []any{map[string]any{"metric": "cpu", "target": 50}},
	}}
	if count != nil {
		svc["count"] = count
	}
	return svc
}

func TestScaleRequests(t *testing.T) {
	w := newWorld(t)
	w.want(201, "PUT", "/v1/definitions/web/1", sized("web", 1))
	w.want(201, "PUT", webPath, service("web", "web@1", 3))
	tests := []struct {
		name, body string
		status     int
		faults     string
	}{
		{"nothing", `{}`, 422, "count: is missing: want how many tasks there are to be"},
		{"below nothing", `{"count": -1}`, 422, "count: is -1, want 0 to 100000"},
		{
			"too many", `{"count": 100001, "min": -2}`, 422,
			"count: is 100001, want 0 to 100000; min: is -2, want 0 to 100000",
		},
		{"text", `{"count": "3"}`, 422, "count: is text, want a whole number"},
		{"bounds the wrong way", `{"min": 4, "max": 3}`, 422, "min: is 4, and max is 3"},
		{
			"bounds without scaling", `{"min": 1, "max": 3}`, 409,
			": service default/web has no scaling, so it has no bounds: give it some with its manifest",
		},
		{"to none", `{"count": 0}`, 200, ""},
		{"back", `{"count": 3}`, 200, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := w.want(test.status, "POST", scalePath, test.body); strings.TrimPrefix(got.faults(),
				": ") != strings.TrimPrefix(test.faults, ": ") {
				t.Errorf("got %s, want %s", got.faults(), test.faults)
			}
		})
	}
	w.want(409, "POST", scalePath+"/suspend", nil)
	w.want(200, "PUT", webPath, scaled(4))
	tests = []struct {
		name, body string
		status     int
		faults     string
	}{
		{
			"above", `{"count": 9}`, 422,
			"count: is 9, and the scaling of service default/web keeps it from 2 to 8: change min or max as well",
		},
		{
			"below", `{"count": 1}`, 422,
			"count: is 1, and the scaling of service default/web keeps it from 2 to 8: change min or max as well",
		},
		{"a least above the most", `{"min": 9}`, 422, "min: is 9, and max is 8"},
		{"with the bound", `{"count": 9, "max": 10}`, 200, ""},
		{"the count follows the bound", `{"max": 6}`, 200, ""},
		{"no most", `{"min": 0, "max": 0}`, 422, "max: is 0, want 1 to 100000: to run none, stop the service"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := w.want(test.status, "POST", scalePath, test.body); got.faults() != test.faults {
				t.Errorf("got %s, want %s", got.faults(), test.faults)
			}
		})
	}
	if svc := w.spec(); svc.Count != 6 || svc.Scaling.Min != 2 || svc.Scaling.Max != 6 || svc.Generation != 1 {
		t.Errorf("count %d, %+v, generation %d", svc.Count, svc.Scaling, svc.Generation)
	}
	daemon := map[string]any{"name": "agent", "definition": "web@1", "mode": "daemon"}
	w.want(201, "PUT", "/v1/clusters/default/services/agent", daemon)
	w.want(409, "POST", "/v1/clusters/default/services/agent/scale", `{"count": 3}`)
}

// A manifest without a count does not reset scaling.
func TestCountLeftToScaling(t *testing.T) {
	w := newWorld(t)
	w.want(201, "PUT", "/v1/definitions/web/1", sized("web", 1))
	steps := []struct {
		name  string
		count any
		scale string
		want  int
	}{
		{"a new one begins with the least", nil, "", 2},
		{"a count is taken", 5, "", 5},
		{"none keeps it", nil, "", 5},
		{"a count that the user set is kept", nil, `{"count": 7}`, 7},
	}
	for _, step := range steps {
		for _, how := range []string{"put", "apply"} {
			if step.scale != "" {
				w.want(200, "POST", scalePath, step.scale)
			}
			if how == "put" {
				w.call("PUT", webPath, scaled(step.count))
			} else {
				w.want(200, "POST", "/v1/apply", manifestsOf("Service", scaled(step.count)))
			}
			if got := w.spec().Count; got != step.want {
				t.Errorf("%s, by %s: count %d, want %d", step.name, how, got, step.want)
			}
		}
	}
	narrow := scaled(nil)
	narrow["scaling"].(map[string]any)["max"] = 3
	w.want(200, "PUT", webPath, narrow)
	if got := w.spec().Count; got != 3 {
		t.Errorf("count %d, want 3: what is kept is brought between the bounds", got)
	}
}

// A count in a request restarts scaling from there, also if the spec has or had the same number.
func TestCountRestartsScaling(t *testing.T) {
	w := newWorld(t)
	w.want(201, "PUT", "/v1/definitions/web/1", sized("web", 1))
	w.want(201, "PUT", webPath, scaled(3))
	grown := func(counted uint64) {
		w.put(map[string]any{"scale/default/web": cluster.Scale{Count: 8, From: w.spec().Count, Recounted: counted}})
		if got := read[api.ScaleView](t, w.want(200, "GET", scalePath, nil)).Count; got != 8 {
			t.Fatalf("count %d, want the 8 of scaling", got)
		}
	}
	steps := []struct {
		name    string
		do      func()
		counted uint64
		want    int
	}{
		{"the number of the spec", func() { w.want(200, "POST", scalePath, `{"count": 3}`) }, 1, 3},
		{"a bound", func() { w.want(200, "POST", scalePath, `{"max": 9}`) }, 1, 8},
		{"a manifest that changes something else", func() {
			m := scaled(3)
			m["priority"] = 600
			w.want(200, "PUT", webPath, m)
		}, 1, 8},
		{"a manifest with another count", func() { w.want(200, "PUT", webPath, scaled(4)) }, 2, 4},
		{"and back", func() {
			w.want(200, "PUT", webPath, scaled(5))
			w.want(200, "PUT", webPath, scaled(4))
		}, 4, 4},
		{"scaling taken away and given back", func() {
			w.want(200, "PUT", webPath, service("web", "web@1", 4))
			w.want(200, "PUT", webPath, scaled(4))
		}, 6, 4},
		{"a restart", func() {
			w.want(200, "POST", webPath+"/restart", nil)
		}, 6, 8},
	}
	for _, step := range steps {
		grown(w.spec().Recounted)
		step.do()
		got := read[api.ScaleView](t, w.want(200, "GET", scalePath, nil)).Count
		if svc := w.spec(); got != step.want || svc.Recounted != step.counted {
			t.Errorf("%s: count %d, counted %d, want %d and %d", step.name, got, svc.Recounted, step.want, step.counted)
		}
	}
	w.want(200, "PUT", webPath, service("web", "web@1", 4))
	was := w.want(200, "GET", webPath, nil).header.Get("ETag")
	if again := w.want(200, "POST", scalePath, `{"count": 4}`); again.header.Get("ETag") != was {
		t.Error("the count that a service without scaling has already was written")
	}
}

func TestScaleView(t *testing.T) {
	w := newWorld(t)
	w.want(201, "PUT", "/v1/definitions/web/1", sized("web", 1))
	w.want(201, "PUT", webPath, scaled(3))
	w.put(map[string]any{
		"scale/default/web": cluster.Scale{
			Count: 5, From: 3, At: noon, Message: "cpu 143% of the target of 50% for 3 tasks",
			Recent: []cluster.ScaleChange{{At: noon, From: 3, To: 5}},
		},
		"status/n1": cluster.NodeStatus{Name: "n1", Session: 4},
	})
	w.runs("default.web.1.0", 1, true)
	w.runs("default.web.1.1", 1, true)
	stats := &cluster.NodeStats{Each: []cluster.TaskStats{
		{Task: "default.web.1.0", UUID: "default.web.1.0-1", CPU: 400, Memory: 32 * cluster.MiB, Growth: cluster.MiB},
		{Task: "default.web.1.1", UUID: "default.web.1.1-1", CPU: 200, Memory: 16 * cluster.MiB},
	}}
	v := read[api.ScaleView](t, w.want(200, "GET", scalePath, nil))
	if v.Targets[0].Value != nil || v.Targets[0].Message == "" || len(v.Tasks) != 0 {
		t.Errorf("nothing was measured, and it shows %+v", v.Targets)
	}
	w.tables.SetPulse("n1", cluster.Pulse{Session: 4, Seq: 1, Stats: stats})
	v = read[api.ScaleView](t, w.want(200, "GET", scalePath, nil))
	if v.Count != 5 || v.Begin != 3 || v.Running != 2 || v.Healthy != 2 || *v.Min != 2 || *v.Max != 8 ||
		!v.At.Equal(noon) || len(v.Recent) != 1 {
		t.Errorf("%+v", v)
	}
	if !strings.Contains(v.Message, "143%") {
		t.Errorf("message %q", v.Message)
	}
	// Usage of 400 and 200 of the 500 that each task reserves: 60 % on average, as much as three tasks at 50 %.
	if tv := v.Targets[0]; tv.Value == nil || *tv.Value != 60 || tv.Wish != 3 {
		t.Errorf("%+v", tv)
	}
	if len(v.Tasks) != 2 || v.Tasks[0].CPU != 400 || v.Tasks[0].Node != "n1" {
		t.Errorf("%+v", v.Tasks)
	}
	// The status counts the tasks that scaling wants; the spec keeps the user's count.
	svc := read[api.ServiceView](t, w.want(200, "GET", webPath, nil))
	if svc.Count != 3 || svc.Status.Desired != 5 {
		t.Errorf("count %d, desired %d", svc.Count, svc.Status.Desired)
	}
	task := read[api.TaskView](t, w.want(200, "GET", "/v1/tasks/default.web.1.0", nil))
	if diff := cmp.Diff(&stats.Each[0], task.Used); diff != "" {
		t.Errorf("the task's use (-want +got):\n%s", diff)
	}
	if node := read[api.NodeView](t, w.want(200, "GET", "/v1/nodes/n1", nil)); node.Used == nil ||
		node.Used.Each != nil {
		t.Errorf("the node's view repeats what its tasks use: %+v", node.Used)
	}
	// Usage of an earlier session belongs to other attempts.
	w.put(map[string]any{"status/n1": cluster.NodeStatus{Name: "n1", Session: 5}})
	if v = read[api.ScaleView](t, w.want(200, "GET", scalePath, nil)); len(v.Tasks) != 0 {
		t.Errorf("%+v", v.Tasks)
	}
	w.want(200, "POST", scalePath+"/suspend", nil)
	was := w.want(200, "GET", webPath, nil).header.Get("ETag")
	if again := w.want(200, "POST", scalePath+"/suspend", nil); again.header.Get("ETag") != was {
		t.Error("to suspend twice wrote twice")
	}
	if v = read[api.ScaleView](t, w.want(200, "GET", scalePath, nil)); !v.Suspended || v.Count != 5 {
		t.Errorf("%+v", v)
	}
	w.want(200, "POST", scalePath+"/resume", nil)
	// A changed count restarts scaling from there.
	w.want(200, "POST", scalePath, `{"count": 4}`)
	if v = read[api.ScaleView](t, w.want(200, "GET", scalePath, nil)); v.Suspended || v.Count != 4 || v.Message != "" ||
		len(v.Recent) != 0 {
		t.Errorf("%+v", v)
	}
	w.want(404, "GET", "/v1/clusters/default/services/none/scale", nil)
}

// TestDaemonStatus checks that a daemon has one task on each node that its constraints allow, and none for forgotten or
// unknown nodes.
func TestDaemonStatus(t *testing.T) {
	w := newWorld(t)
	w.want(201, "PUT", "/v1/definitions/agent/1", definition("agent", 1))
	w.want(201, "PUT", "/v1/clusters/default/services/agent", map[string]any{
		"name": "agent", "definition": "agent@1", "mode": "daemon",
		"placement": map[string]any{"constraints": []any{map[string]any{"attribute": "label.disk", "value": "ssd"}}},
	})
	records := map[string]any{}
	for name, disk := range map[string]string{"n1": "ssd", "n2": "ssd", "n3": "none", "n4": "ssd"} {
		records["node/"+name] = cluster.Node{Name: name, State: cluster.NodeReady, Domain: "default", Since: time.Now()}
		records["status/"+name] = cluster.NodeStatus{
			Name: name, Session: 1,
			Facts: cluster.Facts{Labels: cluster.Labels{"disk": disk}},
		}
	}
	records["host/n4"] = cluster.Host{Name: "n4", Domain: "default", Gone: true}
	w.put(records)
	v := read[api.ServiceView](t, w.want(200, "GET", "/v1/clusters/default/services/agent", nil))
	if v.Status.Desired != 2 || v.Mode != cluster.ModeDaemon {
		t.Errorf("desired %d, want 2", v.Status.Desired)
	}
}

package apiserver

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

// host returns the operator's present settings of a node.
func (w *world) host(name string) (cluster.Host, bool) {
	e, ok := w.tables.Snapshot().Host(name)
	if !ok {
		return cluster.Host{}, false
	}
	return *e.Value, true
}

func TestNodeActions(t *testing.T) {
	now := noon
	w := newWorld(t, func(c *Config) { c.Now = func() time.Time { return now } })
	w.put(map[string]any{"node/n1": cluster.Node{Name: "n1", State: cluster.NodeReady, Domain: "default"}})
	do := func(verb string, body any) api.NodeView {
		t.Helper()
		return read[api.NodeView](t, w.want(200, "POST", "/v1/nodes/n1/"+verb, body))
	}
	steps := []struct {
		verb string
		body any
		want cluster.Host
	}{
		{"cordon", nil, cluster.Host{Name: "n1", Cordon: true}},
		{"uncordon", nil, cluster.Host{Name: "n1"}},
		{"drain", nil, cluster.Host{Name: "n1", Drain: &cluster.Drain{Since: noon}}},
		{
			"drain", `{"deadline": "1h"}`,
			cluster.Host{Name: "n1", Drain: &cluster.Drain{Since: noon, Deadline: noon.Add(time.Hour)}},
		},
		{"drain", nil, cluster.Host{Name: "n1", Drain: &cluster.Drain{Since: noon, Deadline: noon.Add(time.Hour)}}},
		{
			"drain", `{"force": true}`,
			cluster.Host{Name: "n1", Drain: &cluster.Drain{Since: noon, Deadline: noon.Add(time.Hour), Force: true}},
		},
		{"undrain", nil, cluster.Host{Name: "n1"}},
	}
	for _, step := range steps {
		first := do(step.verb, step.body)
		if got, _ := w.host("n1"); !cmp.Equal(step.want, got) {
			t.Errorf("%s %v (-want +got):\n%s", step.verb, step.body, cmp.Diff(step.want, got))
		}
		now = now.Add(time.Second)
		if again := do(step.verb, step.body); again.Revision != first.Revision {
			t.Errorf("%s %v again wrote something: revision %d, then %d", step.verb, step.body, first.Revision,
				again.Revision)
		}
		now = noon
	}

	// A new deadline counts from its request.
	do("drain", `{"deadline": "1h"}`)
	now = noon.Add(30 * time.Minute)
	if v := do("drain", `{"deadline": "10m"}`); !v.Drain.Deadline.Equal(noon.Add(40 * time.Minute)) {
		t.Errorf("a deadline of ten minutes after half an hour: %v", v.Drain.Deadline)
	}
	if got := w.want(409, "POST", "/v1/nodes/n1/uncordon", nil); !strings.Contains(got.problem().Detail,
		"being drained") {
		t.Errorf("%s", got.body)
	}

	// A PUT of the settings does not end the drain.
	w.want(200, "PUT", "/v1/nodes/n1", `{"labels": {"rack": "a"}}`)
	if h, _ := w.host("n1"); h.Drain == nil || h.Labels["rack"] != "a" {
		t.Errorf("after a PUT: %+v", h)
	}
	got := w.want(422, "PUT", "/v1/nodes/n1", `{"gone": true, "drain": {"since": "2026-03-04T12:00:00Z"}}`)
	if want := `drain: is not set here: POST to /v1/nodes/n1/drain; gone: is not set here: POST to /v1/nodes/n1/forget`; got.faults() != want {
		t.Errorf("faults: %s", got.faults())
	}

	w.want(404, "POST", "/v1/nodes/n9/cordon", nil)
	w.want(422, "POST", "/v1/nodes/n1/drain", `{"deadline": "-1h"}`)
	w.want(422, "POST", "/v1/nodes/n1/drain", `{"dead": "1h"}`)
	w.want(412, "POST", "/v1/nodes/n1/cordon", nil, "If-Match", `"1"`)
	rev := read[api.NodeView](t, w.want(200, "GET", "/v1/nodes/n1", nil)).Revision
	w.want(200, "POST", "/v1/nodes/n1/cordon", nil, "If-Match", respond.ETag(rev))
}

func TestForgetNode(t *testing.T) {
	tests := []struct {
		name   string
		state  cluster.NodeState
		body   any
		status int
		says   string
	}{
		{"a ready node", cluster.NodeReady, nil, 409, "is ready"},
		{"a suspect node", cluster.NodeSuspect, nil, 409, "wait until the node is down"},
		{"a drained node", cluster.NodeDrained, nil, 409, "is drained"},
		{"a ready node with force", cluster.NodeReady, `{"force": true}`, 200, `"gone":true`},
		{"a node that is down", cluster.NodeDown, nil, 200, `"gone":true`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.put(map[string]any{"node/n1": cluster.Node{Name: "n1", State: test.state, Domain: "default"}})
			got := w.want(test.status, "POST", "/v1/nodes/n1/forget", test.body)
			if !strings.Contains(string(got.body), test.says) {
				t.Errorf("want %q: %s", test.says, got.body)
			}
			if h, _ := w.host("n1"); h.Gone != (test.status == 200) {
				t.Errorf("the settings: %+v", h)
			}
			if test.status == 200 {
				w.want(200, "POST", "/v1/nodes/n1/forget", nil) // again
				w.want(409, "POST", "/v1/nodes/n1/drain", nil)
			}
		})
	}
}

// TestForgetSettings forgets a node that has only settings, which are removed.
func TestForgetSettings(t *testing.T) {
	w := newWorld(t)
	w.want(200, "PUT", "/v1/nodes/n1", `{"cordon": true}`)
	w.want(200, "POST", "/v1/nodes/n1/forget", nil)
	if h, ok := w.host("n1"); ok {
		t.Errorf("still there: %+v", h)
	}
	w.want(404, "GET", "/v1/nodes/n1", nil)
	events := string(w.want(200, "GET", "/v1/events?types=node.forgotten", nil).body)
	if !strings.Contains(events, `"node":"n1"`) || !strings.Contains(events, `"by":"token-file"`) {
		t.Errorf("events: %s", events)
	}
}

// TestDrainProgress checks why each task is still on a draining node.
func TestDrainProgress(t *testing.T) {
	w := newWorld(t)
	w.web()
	ref := cluster.Ref{Name: "web", Version: 1}
	on := func(task cluster.TaskID, attempt int, node string, kind cluster.Kind,
		change func(*cluster.Desired),
	) *cluster.Desired {
		record := desired(task, attempt, kind, ref)
		d := &record
		d.Node = node
		if change != nil {
			change(d)
		}
		return d
	}
	stop := func(s cluster.Stop) func(*cluster.Desired) { return func(d *cluster.Desired) { d.Stop = &s } }
	service, job := cluster.KindService, cluster.KindJob
	records := map[string]any{
		"node/n1": cluster.Node{Name: "n1", State: cluster.NodeDraining, Domain: "default"},
		"host/n1": cluster.Host{Name: "n1", Drain: &cluster.Drain{Since: time.Now()}},
	}
	for _, d := range []*cluster.Desired{
		on("default.web.1.0", 1, "n1", service, nil),
		on("default.web.1.1", 1, "n1", service, nil),
		on("default.web.1.1", 2, "n2", service, nil),
		on("default.web.1.2", 1, "n1", service, nil),
		on("default.web.1.3", 1, "n1", service,
			stop(cluster.Stop{Class: cluster.StopVoluntary, Message: "the node is drained"})),
		on("default.web.1.4", 1, "n1", service, stop(cluster.Stop{Class: cluster.StopVoluntary, Permit: "p1"})),
		on("default.web.1.5", 1, "n1", service, stop(cluster.Stop{Ended: true})),
		on("default.sum.1.add.0", 1, "n1", job, nil),
	} {
		records["state/"+d.Node+"/"+string(d.Task)] = d
	}
	next := observed(*on("default.web.1.1", 2, "n2", service, nil), cluster.StateRunning, cluster.HealthUnknown)
	next.Node = "n2"
	records["status/n2/default.web.1.1"] = next
	gone := observed(*on("default.web.1.6", 1, "n1", service, nil), cluster.StateCancelled, "")
	gone.Gone = true
	records["status/n1/default.web.1.6"] = gone
	for _, task := range []cluster.TaskID{"default.web.1.1", "default.web.1.2"} {
		moving := outcome(*on(task, 1, "n1", service, nil), cluster.StateCancelled, "it moves")
		moving.Reason = cluster.ReasonDrain
		records["attempt/"+string(task)+"/1"] = moving
	}
	for _, n := range []string{"0", "1", "2"} {
		running := observed(*on(cluster.TaskID("default.web.1."+n), 1, "n1", service, nil), cluster.StateRunning,
			cluster.HealthHealthy)
		records["status/n1/default.web.1."+n] = running
	}
	w.put(records)

	v := read[api.NodeView](t, w.want(200, "GET", "/v1/nodes/n1", nil))
	got := map[cluster.TaskID]string{}
	for _, left := range v.Drain.Left {
		got[left.ID] = left.Why
		if left.State == cluster.StateRunning {
			got[left.ID] = "running: " + left.Why
		}
	}
	want := map[cluster.TaskID]string{
		"default.web.1.0": "running: leaves once another node takes its replacement",
		"default.web.1.1": "running: runs until its replacement is healthy: attempt 2 on n2 is " +
			"running and unknown",
		"default.web.1.2":     "running: runs until its replacement is healthy",
		"default.web.1.3":     "stops once its service can spare it: the node is drained",
		"default.web.1.4":     "stopping",
		"default.web.1.5":     "ended; its remains are being removed",
		"default.sum.1.add.0": "runs to its end, or to the deadline",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what is left (-want +got):\n%s", diff)
	}
}

// TestSoftState checks that a node's usage and heartbeat are shown, and wake no list that waits for a change.
func TestSoftState(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		c.Clock = func() time.Duration { return time.Hour }
		c.Server.Holder = func(node string) string { return map[string]string{"n1": "s2"}[node] }
	})
	w.put(map[string]any{
		"status/n1": cluster.NodeStatus{Name: "n1", Session: 4},
		"node/n1":   cluster.Node{Name: "n1", State: cluster.NodeReady, Domain: "default", Session: 4},
	})
	pulse := cluster.Pulse{
		Session: 3, At: 59 * time.Minute, Next: 5 * time.Second,
		Stats: &cluster.NodeStats{CPU: 300, Tasks: 2},
	}
	w.tables.SetPulse("n1", pulse)
	if v := read[api.NodeView](t, w.want(200, "GET", "/v1/nodes/n1", nil)); v.Used != nil || v.Heartbeat != nil ||
		v.Server != "" {
		t.Errorf("a pulse of a session that is over is shown: %+v", v)
	}
	pulse.Session = 4
	w.tables.SetPulse("n1", pulse)
	page := read[api.Page[api.NodeView]](t, w.want(200, "GET", "/v1/nodes", nil))
	v := page.Items[0]
	if v.Server != "s2" || v.Used == nil || v.Used.CPU != 300 || v.Heartbeat == nil {
		t.Fatalf("%+v", v)
	}
	if diff := cmp.Diff(api.Heartbeat{Age: cluster.Duration(time.Minute), Interval: cluster.Duration(5 * time.Second)},
		*v.Heartbeat); diff != "" {
		t.Errorf("heartbeat (-want +got):\n%s", diff)
	}
	pulse.Seq, pulse.At, pulse.Stats = 9, time.Hour, &cluster.NodeStats{CPU: 900}
	w.tables.SetPulse("n1", pulse)
	began := time.Now()
	w.want(200, "GET", "/v1/nodes?wait=300ms&index="+respond.ETag(page.Index)[1:len(respond.ETag(page.Index))-1], nil)
	if waited := time.Since(began); waited < 250*time.Millisecond {
		t.Errorf("a pulse woke the list after %v", waited)
	}

	stream := w.stream("/v1/nodes")
	defer stream.cancel()
	stream.until(t, "synced")
	for range 5 { // the stream polls every 20 ms
		pulse.Seq++
		w.tables.SetPulse("n1", pulse)
		testkit.Pause(t.Context(), 30*time.Millisecond)
	}
	w.want(200, "POST", "/v1/nodes/n1/cordon", nil)
	got := stream.until(t, "synced")
	if !strings.Contains(got[0].data, `"cordon":true`) {
		t.Errorf("a pulse was streamed: %v", got)
	}
}

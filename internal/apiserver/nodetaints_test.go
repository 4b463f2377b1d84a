package apiserver

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

var undated = cmpopts.IgnoreFields(cluster.Taint{}, "Since")

// TestTaintsAndPools does everything twice: the second time nothing is written.
func TestTaintsAndPools(t *testing.T) {
	w := newWorld(t)
	w.put(map[string]any{"node/n1": cluster.Node{Name: "n1", State: cluster.NodeReady, Domain: "default"}})
	gpu := cluster.Taint{Key: "dedicated", Value: "gpu", Effect: cluster.TaintNoSchedule}
	old := cluster.Taint{Key: "old", Effect: cluster.TaintAvoid}
	evict := cluster.Taint{Key: "dedicated", Value: "ml", Effect: cluster.TaintEvict}
	ml := cluster.Taint{Key: "dedicated", Value: "ml", Effect: cluster.TaintNoSchedule}
	for _, step := range []struct {
		verb, body string
		pool       string
		taints     []cluster.Taint
	}{
		{"untaint", `{"taints": [{"key": "dedicated"}]}`, "", nil}, // no settings yet, and none are made
		{
			"taint", `{"taints": [{"key": "dedicated", "value": "gpu"}, {"key": "old", "effect": "avoid"}]}`, "",
			[]cluster.Taint{gpu, old},
		},
		{"taint", `{"taints": [{"key": "old", "effect": "avoid"}]}`, "", []cluster.Taint{gpu, old}},
		{"taint", `{"taints": [{"key": "dedicated", "value": "ml", "effect": "evict"}, {"key": "dedicated", "value": "ml"}]}`, "", []cluster.Taint{ml, old, evict}},
		{"pool", `{"pool": "gpu"}`, "gpu", []cluster.Taint{ml, old, evict}},
		{
			"untaint", `{"taints": [{"key": "dedicated", "effect": "evict"}, {"key": "nothing"}]}`, "gpu",
			[]cluster.Taint{ml, old},
		},
		{"untaint", `{"taints": [{"key": "dedicated"}]}`, "gpu", []cluster.Taint{old}},
		{"pool", `{}`, "", []cluster.Taint{old}},
		{"untaint", `{"taints": [{"key": "old"}]}`, "", nil},
	} {
		first := read[api.NodeView](t, w.want(200, "POST", "/v1/nodes/n1/"+step.verb, step.body))
		h, _ := w.host("n1")
		if diff := cmp.Diff(step.taints, h.Taints, undated); diff != "" || h.Pool != step.pool {
			t.Errorf("%s %s: the pool is %q, the taints (-want +got):\n%s", step.verb, step.body, h.Pool, diff)
		}
		if !slices.Equal(first.Taints, h.Taints) || first.Pool != h.Pool {
			t.Errorf("%s %s: the answer shows the pool %q and the taints %v", step.verb, step.body, first.Pool,
				first.Taints)
		}
		if again := read[api.NodeView](t,
			w.want(200, "POST", "/v1/nodes/n1/"+step.verb, step.body)); again.Revision != first.Revision {
			t.Errorf("%s %s again wrote something: revision %d, then %d", step.verb, step.body, first.Revision,
				again.Revision)
		}
	}

	// Drains and taints leave each other unchanged.
	w.want(200, "POST", "/v1/nodes/n1/drain", nil)
	w.want(200, "POST", "/v1/nodes/n1/pool", `{"pool": "gpu"}`)
	w.want(200, "POST", "/v1/nodes/n1/taint", `{"taints": [{"key": "a"}]}`)
	w.want(200, "POST", "/v1/nodes/n1/undrain", nil)
	if h, _ := w.host("n1"); h.Pool != "gpu" || len(h.Taints) != 1 || h.Drain != nil {
		t.Errorf("after a drain: %+v", h)
	}
	// A PUT replaces all of the operator's settings.
	got := read[api.NodeView](t, w.want(200, "PUT", "/v1/nodes/n1", `{"pool": "web", "taints": [{"key": "b"}]}`))
	if want := []cluster.Taint{{Key: "b", Effect: cluster.TaintNoSchedule}}; got.Pool != "web" ||
		cmp.Diff(want, got.Taints, undated) != "" {
		t.Errorf("after a PUT: the pool is %q, the taints %v", got.Pool, got.Taints)
	}
	w.want(200, "PUT", "/v1/nodes/n1", `{}`)
	if got := read[api.NodeView](t, w.want(200, "GET", "/v1/nodes/n1", nil)); got.Pool != "" || got.Taints != nil {
		t.Errorf("after an empty PUT: %+v", got)
	}
}

// TestTaintsHaveTheirTime checks that the server sets the time of a taint and ignores the client's.
func TestTaintsHaveTheirTime(t *testing.T) {
	w := newWorld(t)
	began := time.Now().UTC().Truncate(time.Second)
	ago := noon.Add(-time.Hour)
	w.put(map[string]any{
		"node/n1": cluster.Node{Name: "n1", State: cluster.NodeReady, Domain: "default"},
		"host/n1": cluster.Host{Name: "n1", Domain: "default", Taints: []cluster.Taint{
			{Key: "a", Value: "x", Effect: cluster.TaintEvict, Since: ago},
			{Key: "b", Value: "x", Effect: cluster.TaintEvict, Since: ago},
		}},
	})
	got := read[api.NodeView](t, w.want(200, "POST", "/v1/nodes/n1/taint", `{"taints": [
		{"key": "a", "value": "x", "effect": "evict", "since": "2020-01-01T00:00:00Z"}, {"key": "b", "value": "y", "effect": "evict"},
		{"key": "c", "effect": "evict", "since": "2020-01-01T00:00:00Z"}]}`))
	for i := range got.Taints {
		if since := &got.Taints[i].Since; !since.Before(began) {
			*since = began
		}
	}
	want := []cluster.Taint{
		{Key: "a", Value: "x", Effect: cluster.TaintEvict, Since: ago},
		{Key: "b", Value: "y", Effect: cluster.TaintEvict, Since: began},
		{Key: "c", Effect: cluster.TaintEvict, Since: began},
	}
	if diff := cmp.Diff(want, got.Taints); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTaintAndPoolFaults(t *testing.T) {
	w := newWorld(t)
	w.put(map[string]any{"node/n1": cluster.Node{Name: "n1", State: cluster.NodeReady, Domain: "default"}})
	for _, tt := range []struct{ verb, body, want string }{
		{"taint", `{"taints": []}`, "taints: is empty: want at least one taint"},
		{
			"taint", `{"taints": [{"key": "a b"}, {"key": "c", "effect": "NoExecute"}]}`,
			`taints[0].key: "a b" is not a key: want 1 to 63 of letters, digits, "-", "_", "." and "/"; ` +
				`taints[1].effect: is "NoExecute", want one of no-schedule, avoid, evict`,
		},
		{
			"taint", `{"taints": [{"key": "a", "value": "x"}, {"key": "a", "value": "y", "effect": "no-schedule"}]}`,
			"taints[1]: has the key and the effect of taints[0]: one of them is enough",
		},
		{"taint", `{"taint": []}`, `taint: is not a known field; did you mean "taints"?`},
		{"untaint", `{"taints": []}`, "taints: is empty: want at least one key"},
		{
			"untaint", `{"taints": [{"key": "a"}, {"key": ""}, {"key": "b", "effect": "x"}]}`,
			`taints[1].key: "" is not a key: want 1 to 63 of letters, digits, "-", "_", "." and "/"; ` +
				`taints[2].effect: is "x", want one of no-schedule, avoid, evict`,
		},
		{"pool", `{"pool": "A"}`, `pool: "A" is not a name`},
	} {
		if got := w.want(422, "POST", "/v1/nodes/n1/"+tt.verb, tt.body); !strings.Contains(got.faults(), tt.want) {
			t.Errorf("%s %s: got %s, want %s", tt.verb, tt.body, got.faults(), tt.want)
		}
	}
	if _, ok := w.host("n1"); ok {
		t.Error("settings were written")
	}
	for _, verb := range []string{"taint", "untaint"} {
		w.want(404, "POST", "/v1/nodes/n9/"+verb, `{"taints": [{"key": "a"}]}`)
		w.want(412, "POST", "/v1/nodes/n1/"+verb, `{"taints": [{"key": "a"}]}`, "If-Match", `"1"`)
	}
	w.want(404, "POST", "/v1/nodes/n9/pool", `{"pool": "gpu"}`)
	w.want(412, "POST", "/v1/nodes/n1/pool", `{"pool": "gpu"}`, "If-Match", `"1"`)

	// The number of taints is limited, whichever request adds them.
	keys := make([]string, cluster.MaxTaints)
	for i := range keys {
		keys[i] = `{"key": "k` + strings.Repeat("x", i%60) + strings.Repeat("y", i/60) + `"}`
	}
	w.want(200, "POST", "/v1/nodes/n1/taint", `{"taints": [`+strings.Join(keys, ", ")+`]}`)
	if got := w.want(409, "POST", "/v1/nodes/n1/taint",
		`{"taints": [{"key": "one-more"}]}`); !strings.Contains(got.problem().Detail,
		"holds 65 taints, at most 64 are allowed") {
		t.Errorf("%s", got.body)
	}
}

// TestTaintEvents checks that events describe changed taints.
func TestTaintEvents(t *testing.T) {
	w := newWorld(t)
	w.put(map[string]any{"node/n1": cluster.Node{Name: "n1", State: cluster.NodeReady, Domain: "default"}})
	w.want(200, "POST", "/v1/nodes/n1/taint",
		`{"taints": [{"key": "a", "value": "b"}, {"key": "c", "effect": "evict"}]}`)
	w.want(200, "POST", "/v1/nodes/n1/untaint", `{"taints": [{"key": "a"}, {"key": "z"}]}`)
	w.want(200, "POST", "/v1/nodes/n1/untaint", `{"taints": [{"key": "z"}]}`)
	w.want(200, "POST", "/v1/nodes/n1/pool", `{"pool": "gpu"}`)
	w.want(200, "POST", "/v1/nodes/n1/pool", `{}`)
	var got []string
	for e := range w.tables.Snapshot().EventBatches() {
		for _, one := range e.Value.Events {
			got = append(got, one.Type+": "+one.Message)
		}
	}
	want := []string{
		"node-settings.created: tainted a=b:no-schedule, c:evict",
		"node-settings.updated: without the taint a=b:no-schedule",
		"node-settings.updated: put into the pool gpu", "node-settings.updated: taken out of the pool gpu",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

package apiserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
)

// pools returns the list of pools, each as "name strategy nodes".
func (w *world) pools() (all []string) {
	w.t.Helper()
	for _, v := range read[api.Page[api.PoolView]](w.t, w.want(200, "GET", "/v1/pools", nil)).Items {
		all = append(all, fmt.Sprintf("%s %s %d", v.Name, v.Strategy, v.Status.Nodes))
	}
	return all
}

func (w *world) pool(name string) api.PoolView {
	w.t.Helper()
	return read[api.PoolView](w.t, w.want(200, "GET", "/v1/pools/"+name, nil))
}

func TestPools(t *testing.T) {
	w := newWorld(t)
	if got := w.pools(); got != nil {
		t.Errorf("at the beginning: %q", got)
	}
	w.want(404, "GET", "/v1/pools/gpu", nil)
	made := read[api.PoolView](t, w.want(201, "PUT", "/v1/pools/gpu", `{"strategy": "whole"}`))
	if want := (cluster.Pool{Name: "gpu", Strategy: cluster.StrategyWhole}); made.Pool != want || made.Revision == 0 {
		t.Errorf("made: %+v", made)
	}
	if e := w.lastEvent(); e.Type != "pool.created" || e.Message != "the strategy of the pool gpu is whole" {
		t.Errorf("got event %+v", e)
	}
	if again := read[api.PoolView](t, w.want(200, "PUT", "/v1/pools/gpu", made)); again != made {
		t.Errorf("what was read, written again: %+v, before %+v", again, made)
	}
	w.want(412, "PUT", "/v1/pools/gpu", `{}`, "If-Match", `"1"`)
	w.want(412, "PUT", "/v1/pools/gpu", `{}`, "If-None-Match", "*")
	w.want(412, "DELETE", "/v1/pools/gpu", nil, "If-Match", `"1"`)
	changed := read[api.PoolView](t,
		w.want(200, "PUT", "/v1/pools/gpu", `{}`, "If-Match", respond.ETag(made.Revision)))
	if changed.Strategy != "" || changed.Revision <= made.Revision {
		t.Errorf("changed: %+v", changed)
	}
	if e := w.lastEvent(); e.Type != "pool.updated" ||
		e.Message != "the strategy of the pool gpu is that of the cluster" {
		t.Errorf("got event %+v", e)
	}
	var paths []string
	for _, f := range w.refused(422, "PUT", "/v1/pools/gpu", `{"name": "cpu", "strategy": "pile"}`).Faults {
		paths = append(paths, f.Path)
	}
	if diff := cmp.Diff([]string{"name", "strategy"}, paths); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	w.want(400, "PUT", "/v1/pools/a.b", `{}`)
	w.want(204, "DELETE", "/v1/pools/gpu", nil, "If-Match", respond.ETag(changed.Revision))
	if e := w.lastEvent(); e.Type != "pool.deleted" || e.Reason != cluster.ReasonDeleted {
		t.Errorf("got event %+v", e)
	}
	w.want(404, "DELETE", "/v1/pools/gpu", nil)
	w.want(404, "GET", "/v1/pools/gpu", nil)
}

// TestPoolsWithNodes shows that a pool exists as long as nodes name it, and is deleted only without nodes.
func TestPoolsWithNodes(t *testing.T) {
	w := newWorld(t)
	for i := range 7 {
		w.put(map[string]any{fmt.Sprintf("host/n%d", i): cluster.Host{Name: fmt.Sprintf("n%d", i), Pool: "gpu"}})
	}
	w.put(map[string]any{"host/old": cluster.Host{Name: "old", Pool: "gone", Gone: true}})
	w.want(201, "PUT", "/v1/pools/cpu", `{}`)
	if diff := cmp.Diff([]string{"cpu  0", "gpu  7"}, w.pools()); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
	if v := w.pool("gpu"); v.Name != "gpu" || v.Revision != 0 || v.Status.Nodes != 7 {
		t.Errorf("without a record: %+v", v)
	}
	w.want(404, "GET", "/v1/pools/gone", nil)
	refused := w.refused(409, "DELETE", "/v1/pools/gpu", nil).Detail
	for _, want := range []string{"pool gpu still has 7 nodes: n0, n1, n2, n3, n4 and 2 more. Take each out", "--none"} {
		if !strings.Contains(refused, want) {
			t.Errorf("the refusal lacks %q: %s", want, refused)
		}
	}
	w.want(201, "PUT", "/v1/pools/gpu", `{"strategy": "whole"}`, "If-None-Match", "*")
	w.want(409, "DELETE", "/v1/pools/gpu", nil)
	for i := range 7 {
		w.put(map[string]any{fmt.Sprintf("host/n%d", i): cluster.Host{Name: fmt.Sprintf("n%d", i)}})
	}
	w.want(204, "DELETE", "/v1/pools/gpu", nil)
	if diff := cmp.Diff([]string{"cpu  0"}, w.pools()); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
}

// TestApplyPools applies pools together with other objects, dry and in earnest, and checks who may do so.
func TestApplyPools(t *testing.T) {
	s := newSecure(t)
	gpu := manifestsOf("Pool", map[string]any{"name": "gpu", "strategy": "whole"})
	gpu["dry_run"] = true
	planned := read[api.ApplyReply](t, s.want(200, "POST", "/v1/apply", gpu))
	want := []api.Change{{Kind: cluster.KindPool, Name: "gpu", Action: api.ActionCreate}}
	if diff := cmp.Diff(want, planned.Changes); diff != "" {
		t.Errorf("dry run (-want +got):\n%s", diff)
	}
	s.want(404, "GET", "/v1/pools/gpu", nil)

	s.want(201, "PUT", "/v1/clusters/red", `{}`)
	submitter, limited := s.access(cluster.RoleSubmitter), s.access(cluster.RoleSubmitter, "red")
	if got := s.ask(s.plain, submitter, "POST", "/v1/apply", gpu); got.status != 403 ||
		!strings.Contains(string(got.body), "to make or change pool gpu needs the role operator") {
		t.Errorf("a submitter: status %d: %s", got.status, got.body)
	}
	delete(gpu, "dry_run")
	s.want(200, "POST", "/v1/apply", gpu)
	if got := s.ask(s.plain, submitter, "POST", "/v1/apply", gpu); got.status != 200 {
		t.Errorf("a submitter without a change: status %d: %s", got.status, got.body)
	}
	for name, got := range map[string]reply{
		"apply": s.ask(s.plain, limited, "POST", "/v1/apply", gpu),
		"list":  s.ask(s.plain, limited, "GET", "/v1/pools", nil),
	} {
		if got.status != 403 {
			t.Errorf("%s with a token that is limited to a cluster: status %d: %s", name, got.status, got.body)
		}
	}
	gpu["objects"].([]any)[0].(map[string]any)["spec"] = map[string]any{"name": "gpu", "strategy": "pile"}
	if got := s.want(422, "POST", "/v1/apply", gpu).problem(); len(got.Faults) != 1 ||
		got.Faults[0].Path != "objects[0].strategy" {
		t.Errorf("faults: %+v", got.Faults)
	}
}

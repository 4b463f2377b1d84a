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

// applied returns the body that applies a version of the profile worker.
func applied(version int, executor string) string {
	return fmt.Sprintf(`{"objects": [{"kind": "Profile", "spec": {"name": "worker", "version": %d,
		"agent": {"executor": %q}}}]}`, version, executor)
}

// TestMachineProfiles writes versions of a profile, each once, and deletes those that no node has.
func TestMachineProfiles(t *testing.T) {
	w := newWorld(t)
	w.want(404, "GET", "/v1/profiles/worker", nil)
	w.want(200, "POST", "/v1/apply", applied(1, "process"))
	if e := w.lastEvent(); e.Type != "profile.created" || e.Message != "the profile worker@1" {
		t.Errorf("got event %+v", e)
	}
	w.want(200, "POST", "/v1/apply", applied(10, "containerd"))
	first := read[api.ProfileView](t, w.want(200, "GET", "/v1/profiles/worker/1", nil))
	newest := read[api.ProfileView](t, w.want(200, "GET", "/v1/profiles/worker", nil))
	if first.Agent.Executor != cluster.AgentProcess || newest.Version != 10 {
		t.Errorf("got the first version %+v and the newest %+v", first, newest)
	}
	again := read[api.ApplyReply](t, w.want(200, "POST", "/v1/apply", applied(1, "process")))
	if again.Changes[0].Action != api.ActionNone || again.Changes[0].Revision != first.Revision {
		t.Errorf("the same content again: %+v", again.Changes)
	}
	p := w.refused(409, "POST", "/v1/apply", applied(1, "auto"))
	if !strings.Contains(fmt.Sprint(p.Detail, p.Faults), "executor") {
		t.Errorf("another content was refused with %+v", p)
	}
	p = w.refused(422, "POST", "/v1/apply", applied(0, "vm"))
	var paths []string
	for _, f := range p.Faults {
		paths = append(paths, f.Path)
	}
	if diff := cmp.Diff([]string{"objects[0].version", "objects[0].agent.executor"}, paths); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	setup := `{"pool": "edge", "setup": {"address": "root@10.0.0.5", "profile": "worker@1",
		"at": "2026-11-29T12:00:00Z"}}`
	n := read[api.NodeView](t, w.want(200, "POST", "/v1/nodes/n1/setup", setup))
	if n.State != cluster.NodeAbsent || n.Pool != "edge" || n.Setup == nil || n.Setup.Profile.Version != 1 {
		t.Errorf("the node is %+v", n)
	}
	if e := w.lastEvent(); e.Type != "node-settings.created" || e.Message != "set up at root@10.0.0.5" {
		t.Errorf("got event %+v", e)
	}
	p = w.refused(409, "DELETE", "/v1/profiles/worker/1", nil)
	if !strings.Contains(p.Detail, "that of 1 node: n1") {
		t.Errorf("the deletion was refused with %q", p.Detail)
	}
	w.want(412, "DELETE", "/v1/profiles/worker/10", nil, "If-Match", `"1"`)
	w.want(204, "DELETE", "/v1/profiles/worker/10", nil, "If-Match", respond.ETag(newest.Revision))
	w.want(404, "GET", "/v1/profiles/worker/10", nil)
	if got := read[api.ProfileView](t, w.want(200, "GET", "/v1/profiles/worker", nil)); got.Version != 1 ||
		len(got.Nodes) != 1 {
		t.Errorf("after the deletion the newest is %+v", got)
	}
}

// TestSetupOfNodes checks the bounds of a setup, that other writes of the settings keep it, and that a node of another
// domain is refused.
func TestSetupOfNodes(t *testing.T) {
	w := newWorld(t)
	w.want(409, "POST", "/v1/nodes/n1/setup", `{"setup": {"address": "", "at": "2026-11-29T12:00:00Z"}}`)
	w.want(400, "POST", "/v1/nodes/N_1/setup", `{"setup": {"address": "a", "at": "2026-11-29T12:00:00Z"}}`)
	good := `{%s "setup": {"address": "root@10.0.0.5", "at": "2026-11-29T12:00:00Z"}}`
	w.want(422, "POST", "/v1/nodes/n1/setup", fmt.Sprintf(good, `"domain": "other",`))
	w.want(200, "POST", "/v1/nodes/n1/setup", fmt.Sprintf(good, ""))
	w.want(200, "PUT", "/v1/nodes/n1", `{"labels": {"a": "b"}}`)
	n := read[api.NodeView](t, w.want(200, "POST", "/v1/nodes/n1/cordon", nil))
	if n.Setup == nil || n.Setup.Address != "root@10.0.0.5" || n.Labels["a"] != "b" || !n.Cordon {
		t.Errorf("the node is %+v", n)
	}
	drift := `{"setup": {"address": "root@10.0.0.5", "at": "2026-11-29T12:00:00Z", "drift": [%s]}}`
	w.want(200, "POST", "/v1/nodes/n1/setup", fmt.Sprintf(drift, `"file /a", "b", "c", "d", "e", "f", "g"`))
	if e := w.lastEvent(); e.Type != "node.drifted" ||
		e.Message != "the machine differs from its profile: file /a, b, c, d, e and 2 more" {
		t.Errorf("got event %+v", e)
	}
	w.want(200, "POST", "/v1/nodes/n1/setup", fmt.Sprintf(drift, ""))
	if e := w.lastEvent(); e.Type != "node.repaired" {
		t.Errorf("got event %+v", e)
	}
	w.want(409, "POST", "/v1/nodes/n1/setup", fmt.Sprintf(drift, strings.Repeat(`"x",`, cluster.MaxDrift)+`"x"`))
}

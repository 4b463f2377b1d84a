package apiserver

import (
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// ticking returns a world with a running task with checks.
func ticking(t *testing.T) *world {
	w := newWorld(t)
	w.want(200, "POST", "/v1/apply", manifestsOf(
		"TaskDefinition", map[string]any{
			"name": "work", "version": 1, "ports": []any{map[string]any{"name": "http"}},
			"containers": []any{map[string]any{"name": "main", "image": "a/work:1"}},
			"checks": []any{
				map[string]any{"name": "beat", "type": "ttl"},
				map[string]any{"name": "front", "type": "http"},
			},
		},
		"Service", service("work", "work@1", 2),
	))
	run := desired("default.work.1.0", 1, cluster.KindService, cluster.Ref{Name: "work", Version: 1})
	w.put(map[string]any{
		"status/n1": cluster.NodeStatus{Name: "n1", Session: 1, Registered: noon},
		"node/n1": cluster.Node{
			Name: "n1", State: cluster.NodeReady, Domain: "default", Since: noon,
			Session: 1,
		},
		"state/n1/default.work.1.0":  run,
		"status/n1/default.work.1.0": observed(run, cluster.StateRunning, cluster.HealthHealthy),
	})
	return w
}

func TestTTLUpdatesArePassedOn(t *testing.T) {
	w := ticking(t)
	asked := make(chan transport.StreamRequest, 1)
	problem := ""
	w.nodes.set(agent(func(req transport.StreamRequest, conn net.Conn) {
		asked <- req
		_ = transport.NewFrameWriter(conn).End(transport.ExecEnd{Error: problem})
	}))
	const beat = "/v1/tasks/default.work.1.0/checks/beat"
	for _, test := range []struct{ body, word, message string }{
		{`{"word": "pass"}`, "pass", ""},
		{`{"word": "warn"}`, "warn", "said by token-file"},
		{`{"word": "fail", "message": "the queue is stuck"}`, "fail", "the queue is stuck, said by token-file"},
	} {
		w.want(204, "POST", beat+"?attempt=1", strings.NewReader(test.body))
		req := <-asked
		want := transport.StreamRequest{
			ID: req.ID, Kind: transport.StreamTTLUpdate, Task: "default.work.1.0", UUID: "default.work.1.0-1",
			Word: &transport.WordRequest{Check: "beat", Word: cluster.TTLUpdate(test.word), Message: test.message},
		}
		if diff := cmp.Diff(want, req); diff != "" {
			t.Errorf("%s: asked of the agent (-want +got):\n%s", test.body, diff)
		}
	}

	problem = "the task is not running: retry once it runs"
	got := w.want(409, "POST", beat, strings.NewReader(`{"word": "pass"}`))
	if <-asked; !strings.Contains(got.problem().Detail, "node n1: "+problem) {
		t.Errorf("%s", got.body)
	}
	w.nodes.set(agent(func(_ transport.StreamRequest, _ net.Conn) {})) // the agent ends
	got = w.want(502, "POST", beat, strings.NewReader(`{"word": "pass"}`))
	if !strings.Contains(got.problem().Detail, "the connection to node n1 broke") {
		t.Errorf("%s", got.body)
	}
	w.nodes.set(nil)
	w.want(503, "POST", beat, strings.NewReader(`{"word": "pass"}`))
}

func TestInvalidTTLUpdatesAreRefused(t *testing.T) {
	w := ticking(t)
	w.nodes.set(agent(func(req transport.StreamRequest, _ net.Conn) { t.Errorf("%v reached the agent", req.Word) }))
	const pass = `{"word": "pass"}`
	for name, test := range map[string]struct {
		path, body string
		status     int
		want       string
	}{
		"no word": {"default.work.1.0/checks/beat", `{}`, 422, `is "", want one of pass, warn, fail`},
		"another word": {
			"default.work.1.0/checks/beat", `{"word": "maybe"}`, 422,
			`is "maybe", want one of pass, warn, fail`,
		},
		"a long message": {
			"default.work.1.0/checks/beat",
			`{"word": "fail", "message": "` + strings.Repeat("a", 501) + `"}`, 422, "at most 500 bytes",
		},
		"several lines": {
			"default.work.1.0/checks/beat", `{"word": "fail", "message": "a\nb"}`, 422,
			"one line of text",
		},
		"an unknown field":  {"default.work.1.0/checks/beat", `{"status": "pass"}`, 422, "status"},
		"no check":          {"default.work.1.0/checks/bite", pass, 404, `no check "bite"; of type ttl it has beat`},
		"another type":      {"default.work.1.0/checks/front", pass, 409, "is of type http"},
		"no task":           {"default.work.1.7/checks/beat", pass, 404, "default.work.1.7"},
		"another attempt":   {"default.work.1.0/checks/beat?attempt=2", pass, 404, "default.work.1.0"},
		"a task that waits": {"default.work.1.1/checks/beat", pass, 409, "not placed"},
	} {
		t.Run(name, func(t *testing.T) {
			got := w.want(test.status, "POST", "/v1/tasks/"+test.path, strings.NewReader(test.body))
			if !strings.Contains(string(got.body), test.want) && !strings.Contains(got.problem().Detail, test.want) &&
				!strings.Contains(strings.ReplaceAll(string(got.body), `\"`, `"`), test.want) {
				t.Errorf("got %s, want %q", got.body, test.want)
			}
		})
	}
}

package apiserver

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pki"
)

// TestDialNode sets where a passive node is dialed, before and after its agent registers. Other writes of the settings
// keep the address, and callers with a limit do not see it.
func TestDialNode(t *testing.T) {
	problem := func(node string) string {
		return map[string]string{"n1": "dial tcp 10.0.0.5:7073: connection refused"}[node]
	}
	s := newSecure(t, func(c *Config) { c.Server.DialProblem = problem })
	s.want(404, "POST", "/v1/nodes/n1/dial", `{"dial": ""}`)
	for _, wrong := range []string{"10.0.0.5:x", "ssh://", "https://n1:7073"} {
		got := s.want(422, "POST", "/v1/nodes/n1/dial", map[string]string{"dial": wrong})
		if detail := string(got.body); !strings.Contains(detail, "is not an address of a passive node") ||
			!strings.Contains(detail, `"dial"`) {
			t.Errorf("%s: %s", wrong, detail)
		}
	}
	s.want(409, "POST", "/v1/nodes/n1/setup", `{"setup": {"address": "a", "at": "2026-11-29T12:00:00Z"}, "dial": ":"}`)
	s.want(200, "POST", "/v1/nodes/n1/dial", `{"dial": "10.0.0.5"}`)
	if e := s.lastEvent(); e.Type != "node-settings.created" || e.Message != "the servers dial 10.0.0.5" {
		t.Errorf("the event is %+v", e)
	}
	s.want(200, "PUT", "/v1/nodes/n1", `{"labels": {"a": "b"}}`)
	s.want(200, "POST", "/v1/nodes/n1/setup", `{"setup": {"address": "a", "at": "2026-11-29T12:00:00Z"}}`)
	n := read[api.NodeView](t, s.want(200, "GET", "/v1/nodes/n1", nil))
	if n.Dial != "10.0.0.5" || n.DialProblem != problem("n1") || n.Labels["a"] != "b" {
		t.Errorf("the node is dialed at %q, with the problem %q and the labels %v", n.Dial, n.DialProblem, n.Labels)
	}
	s.want(200, "POST", "/v1/apply", manifestsOf("Cluster", map[string]any{"name": "red"}))
	limited := s.ask(s.plain, s.access(cluster.RoleViewer, "red"), "GET", "/v1/nodes/n1", nil)
	if limited.status != 200 || strings.Contains(string(limited.body), "10.0.0.5") {
		t.Errorf("a caller of one cluster sees %d: %s", limited.status, limited.body)
	}
	for role, want := range map[cluster.Role]int{cluster.RoleSubmitter: 403, cluster.RoleOperator: 200} {
		got := s.ask(s.plain, s.access(role), "POST", "/v1/nodes/n1/dial", `{"dial": ""}`)
		if got.status != want {
			t.Errorf("%s gets %d, want %d: %s", role, got.status, want, got.body)
		}
	}
	if h, _ := s.host("n1"); h.Dial != "" {
		t.Errorf("the node is dialed at %q", h.Dial)
	}
}

// TestListenForAgents sends requests over connections that the server opened to a passive node: those of agents are
// served, and nothing else, with whatever token or certificate.
func TestListenForAgents(t *testing.T) {
	s := newSecure(t)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "https://" + l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.server.Serve(ctx, ListenForAgents(l, s.keeper)) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	status := func(c *http.Client, token, method, path string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	admin := s.access(cluster.RoleAdmin)
	node, server := s.shows(nodeOne), s.shows(pki.Subject{Role: cluster.RoleServer, Name: "s2"})
	if got := status(node, "", "GET", transportPath); got != 200 {
		t.Errorf("an agent gets %d", got)
	}
	if got := status(s.plain, "", "POST", "/v1/join"); got != 400 {
		t.Errorf("a join without a body gets %d, want 400", got)
	}
	for _, path := range []string{
		"/v1/nodes", "/v1/status", "/v1/version", "/metrics", "/peer/x", "/openapi.json", "/", "/v1/join/x",
		"/agent/../v1/nodes",
	} {
		for name, c := range map[string]*http.Client{"a person": s.plain, "a node": node, "a server": server} {
			if got := status(c, admin, "GET", path); got != 403 {
				t.Errorf("%s gets %d for %s, want 403", name, got, path)
			}
		}
	}
}

package apiserver

import (
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

// TestDomainsAreRefused checks that only the default domain is accepted, because another one has no leader.
func TestDomainsAreRefused(t *testing.T) {
	w := newWorld(t)
	for _, test := range []struct {
		method, path string
		body         any
		field        string
	}{
		{"PUT", "/v1/clusters/blue", `{"domain": "north"}`, "domain: "},
		{
			"POST", "/v1/apply", manifestsOf("Cluster", map[string]any{"name": "blue", "domain": "north"}),
			"objects[0].domain: ",
		},
		{"PUT", "/v1/nodes/n1", `{"domain": "north"}`, "domain: "},
		{"PUT", "/v1/reservations/r1", `{"domain": "north"}`, "domain: "},
	} {
		got := w.call(test.method, test.path, test.body)
		if got.status < 400 || !strings.Contains(got.faults(), test.field+`is "north"`) ||
			!strings.Contains(got.faults(), "leave the field out") {
			t.Errorf("%s %s: status %d, %s", test.method, test.path, got.status, got.body)
		}
	}
	w.want(201, "PUT", "/v1/clusters/blue", `{"domain": "default"}`)
	w.want(201, "PUT", "/v1/clusters/green", `{}`)

	// Records from another program raise alarms. The next write returns them to the default domain.
	w.put(map[string]any{
		"cluster/red": &cluster.Cluster{Name: "red", Domain: "north"},
		"host/n7":     &cluster.Host{Name: "n7", Domain: "north"},
		"node/n8":     &cluster.Node{Name: "n8", Domain: "north", Generation: 4},
	})
	alarms := func() string { return string(w.want(200, "GET", "/v1/status", nil).body) }
	for _, want := range []string{
		"cluster red is in the domain north", "node n7 is in the domain north", "generation: 5",
	} {
		if got := alarms(); !strings.Contains(got, want) {
			t.Errorf("no alarm %q: %s", want, got)
		}
	}
	w.want(200, "PUT", "/v1/clusters/red", `{}`)
	w.want(200, "PUT", "/v1/nodes/n7", `{}`)
	if got := alarms(); strings.Count(got, "north") != 1 { // the leader takes n8 over
		t.Errorf("the alarms of the written records are left: %s", got)
	}
}

// TestForeignClustersAreHidden reads the alarm about another cluster with a token that is limited to one.
func TestForeignClustersAreHidden(t *testing.T) {
	s := newSecure(t)
	s.put(map[string]any{"cluster/red": &cluster.Cluster{Name: "red", Domain: "north"}})
	for want, token := range map[bool]string{
		true: s.access(cluster.RoleViewer), false: s.access(cluster.RoleViewer, "default"),
	} {
		got := s.ask(s.plain, token, "GET", "/v1/status", nil)
		if shown := strings.Contains(string(got.body), "cluster red"); got.status != 200 || shown != want {
			t.Errorf("status %d, the alarm is shown: %v, want %v: %s", got.status, shown, want, got.body)
		}
	}
}

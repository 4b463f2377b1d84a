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

	// The next write of a record from an earlier build returns it to the default domain.
	w.put(map[string]any{"cluster/red": &cluster.Cluster{Name: "red", Domain: "north"}})
	w.want(200, "PUT", "/v1/clusters/red", `{}`)
	if c, _ := w.tables.Snapshot().Cluster("red"); c.Value.InDomain() != cluster.DefaultDomain {
		t.Errorf("the cluster is still in %s", c.Value.Domain)
	}
}

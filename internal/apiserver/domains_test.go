package apiserver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// TestDomains makes domains, changes them and deletes them, and checks what is refused.
func TestDomains(t *testing.T) {
	w := newWorld(t)
	names := func() (all []string) {
		for _, v := range read[api.Page[api.DomainView]](t, w.want(200, "GET", "/v1/domains", nil)).Items {
			all = append(all, fmt.Sprintf("%s %d", v.Name, v.Number))
		}
		return all
	}
	if diff := cmp.Diff([]string{"default 0"}, names()); diff != "" {
		t.Errorf("domains (-want +got):\n%s", diff)
	}
	w.want(201, "PUT", "/v1/domains/ci", `{"pools": ["runners"], "silence": {"jobs": "1h"}}`)
	w.want(200, "POST", "/v1/apply", manifestsOf("Domain", map[string]any{"name": "gpu"},
		"Domain", map[string]any{"name": "web", "number": 77},
		"Cluster", map[string]any{"name": "site", "domain": "web"}))
	if diff := cmp.Diff([]string{"ci 1", "default 0", "gpu 2", "web 3"}, names()); diff != "" {
		t.Errorf("domains (-want +got):\n%s", diff)
	}
	w.want(200, "PUT", "/v1/domains/ci", `{"pools": ["runners", "builders"]}`)
	got := read[api.DomainView](t, w.want(200, "GET", "/v1/domains/ci", nil))
	if got.Number != 1 || len(got.Pools) != 2 || got.Silence != nil {
		t.Errorf("the changed domain is %+v", got)
	}
	w.want(200, "PUT", "/v1/domains/default", `{"silence": {"suspect": "1m"}}`)

	// A number is not used again.
	w.want(204, "DELETE", "/v1/domains/gpu", nil)
	w.want(201, "PUT", "/v1/domains/gpu", `{}`)
	if diff := cmp.Diff([]string{"ci 1", "default 0", "gpu 4", "web 3"}, names()); diff != "" {
		t.Errorf("domains (-want +got):\n%s", diff)
	}

	w.put(map[string]any{
		"host/n1": &cluster.Host{Name: "n1", Pool: "runners"}, "node/n2": &cluster.Node{Name: "n2", Domain: "gpu"},
	})
	for _, test := range []struct {
		status       int
		method, path string
		body         any
		want         string
	}{
		{
			422, "PUT", "/v1/clusters/blue", `{"domain": "north"}`,
			"there is no domain north; there are ci, default, gpu, web",
		},
		{
			422, "POST", "/v1/apply", manifestsOf("Cluster", map[string]any{"name": "blue", "domain": "north"}),
			"objects[0].domain: there is no domain north",
		},
		{422, "PUT", "/v1/nodes/n1", `{"domain": "north"}`, "there is no domain north"},
		{422, "PUT", "/v1/reservations/r1", `{"domain": "north"}`, `is "north", and there are the domains`},
		{422, "POST", "/v1/nodes/n1/domain", `{"domain": "north"}`, "there is no domain north"},
		{
			409, "POST", "/v1/nodes/n1/domain", `{"domain": "default"}`,
			"is in the pool runners, which belongs to the domain ci",
		},
		{409, "PUT", "/v1/domains/gpu", `{"pools": ["runners"]}`, "the pool runners belongs to the domain ci"},
		{
			409, "POST", "/v1/apply", manifestsOf("Domain", map[string]any{"name": "a", "pools": []string{"x"}},
				"Domain", map[string]any{"name": "b", "pools": []string{"x"}}),
			"the pool x belongs to the domain a",
		},
		{422, "PUT", "/v1/domains/gpu", `{"silence": {"down": "1s"}}`, "silence.down: is 1s"},
		{409, "DELETE", "/v1/domains/default", nil, "always exists"},
		{409, "DELETE", "/v1/domains/ci", nil, "still holds node n1"},
		{409, "DELETE", "/v1/domains/gpu", nil, "still holds node n2"},
		{409, "DELETE", "/v1/domains/web", nil, "still holds cluster site"},
		{404, "GET", "/v1/domains/north", nil, "north"},
		{404, "GET", "/v1/queue?domain=north", nil, "north"},
		{404, "GET", "/v1/status?domain=north", nil, "north"},
		{404, "POST", "/v1/domains/north/reschedule", `{"for": "1m"}`, "north"},
	} {
		got := w.call(test.method, test.path, test.body)
		if all := string(got.body) + got.faults(); got.status != test.status || !strings.Contains(all, test.want) {
			t.Errorf("%s %s: status %d, want %d with %q: %s", test.method, test.path, got.status, test.status,
				test.want, all)
		}
	}
}

// TestClusterKeepsItsDomain changes the domain of a cluster, which is refused once it holds a service.
func TestClusterKeepsItsDomain(t *testing.T) {
	w := newWorld(t)
	w.want(201, "PUT", "/v1/domains/ci", `{}`)
	w.want(201, "PUT", "/v1/clusters/blue", `{}`)
	w.want(200, "PUT", "/v1/clusters/blue", `{"domain": "ci"}`)
	w.put(map[string]any{"service/blue/web": &cluster.Service{Cluster: "blue", Name: "web", Count: 1}})
	got := w.call("PUT", "/v1/clusters/blue", `{"domain": "default"}`)
	if got.status != 409 || !strings.Contains(string(got.body), "holds services, jobs or crons") {
		t.Errorf("status %d: %s", got.status, got.body)
	}
	w.want(200, "PUT", "/v1/clusters/blue", `{"domain": "ci", "strategy": "spread"}`)
}

// TestNodeIsGivenAway gives a node to another domain, in the ordinary way and by force.
func TestNodeIsGivenAway(t *testing.T) {
	w := newWorld(t)
	w.want(201, "PUT", "/v1/domains/ci", `{}`)
	w.put(map[string]any{
		"node/n1": &cluster.Node{Name: "n1", Domain: "default", Generation: 3, State: cluster.NodeReady},
	})
	w.want(200, "POST", "/v1/nodes/n1/domain", `{"domain": "ci"}`)
	host := func() cluster.Host {
		e, _ := w.tables.Snapshot().Host("n1")
		return *e.Value
	}
	if h := host(); h.Domain != "ci" || h.Generation != 0 {
		t.Errorf("the settings are %+v", h)
	}
	w.want(200, "POST", "/v1/nodes/n1/domain", `{"domain": "ci", "force": true}`)
	if h := host(); h.Domain != "ci" || h.Generation != 4 {
		t.Errorf("the settings by force are %+v, want generation 4", h)
	}
}

// TestForeignDomains reads the alarms about records of domains that do not exist, which another program wrote. A token
// that is limited to a cluster does not see them.
func TestForeignDomains(t *testing.T) {
	s := newSecure(t)
	s.put(map[string]any{
		"cluster/red": &cluster.Cluster{Name: "red", Domain: "north"},
		"host/n7":     &cluster.Host{Name: "n7", Domain: "north"},
		"node/n8":     &cluster.Node{Name: "n8", Domain: "north", Generation: 4},
		"domain/ci":   &cluster.Domain{Name: "ci", Number: 1},
	})
	for want, token := range map[bool]string{
		true: s.access(cluster.RoleViewer), false: s.access(cluster.RoleViewer, "default"),
	} {
		got := s.ask(s.plain, token, "GET", "/v1/status", nil)
		for _, text := range []string{
			"cluster red is in the domain north", "node n7 is in the domain north",
			"node n8 belongs to the domain north", "no server leads the domain ci",
		} {
			if shown := strings.Contains(string(got.body), text); got.status != 200 || shown != want {
				t.Errorf("status %d, %q is shown: %v, want %v: %s", got.status, text, shown, want, got.body)
			}
		}
	}
	if got := s.ask(s.plain, s.access(cluster.RoleViewer, "default"), "GET", "/v1/domains", nil); got.status != 403 {
		t.Errorf("a token of one cluster lists the domains: status %d", got.status)
	}
	if got := s.ask(s.plain, s.access(cluster.RoleSubmitter), "PUT", "/v1/domains/x", `{}`); got.status != 403 {
		t.Errorf("a submitter makes a domain: status %d", got.status)
	}
}

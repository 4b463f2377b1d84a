package cluster_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

func TestEndpointFaults(t *testing.T) {
	for _, tt := range []struct {
		name     string
		endpoint cluster.Endpoint
		want     []string // beginnings of the faults
	}{
		{"complete", cluster.Endpoint{Name: "web-http", Service: "web", Port: "http"}, nil},
		{
			"every field",
			cluster.Endpoint{
				Cluster: "prod", Name: "web-http", Service: "web", Port: "http", Labels: cluster.Labels{"team": "shop"},
				Tags: cluster.Labels{"track": "stable"}, HealthyOnly: new(false),
			},
			nil,
		},
		{
			"nothing",
			cluster.Endpoint{},
			[]string{`name: "" is not a name`, "service: is missing: want the name of a service", "port: is missing"},
		},
		{
			"the name of the service",
			cluster.Endpoint{Name: "web", Service: "web", Port: "http"},
			[]string{`name: is the name of the service, too, which DNS answers already: choose another, such as "web-http"`},
		},
		{
			"all together",
			cluster.Endpoint{
				Cluster: "Prod", Name: "web_http", Service: "WEB", Port: "80/tcp",
				Labels: cluster.Labels{"a b": ""}, Tags: cluster.Labels{"c d": ""},
			},
			[]string{`cluster: "Prod"`, `name: "web_http"`, `labels["a b"]`, `service: "WEB"`, `port: "80/tcp"`, `tags["c d"]`},
		},
	} {
		faults := cluster.FaultsOf(tt.endpoint.Validate())
		if len(faults) != len(tt.want) {
			t.Errorf("%s: got %v, want %d faults", tt.name, faults, len(tt.want))
			continue
		}
		for i, f := range faults {
			if !strings.HasPrefix(f.String(), tt.want[i]) {
				t.Errorf("%s: got %q, want %q…", tt.name, f, tt.want[i])
			}
		}
	}
}

// TestEndpointTags compares tags with the labels of a definition: all of them must be there.
func TestEndpointTags(t *testing.T) {
	stable := cluster.Labels{"track": "stable", "team": "shop"}
	for _, tt := range []struct {
		tags, labels cluster.Labels
		want         bool
	}{
		{nil, nil, true},
		{nil, stable, true},
		{cluster.Labels{"track": "stable"}, stable, true},
		{cluster.Labels{"track": "stable", "team": "shop"}, stable, true},
		{cluster.Labels{"track": "canary"}, stable, false},
		{cluster.Labels{"track": "stable", "zone": "a"}, stable, false},
		{cluster.Labels{"zone": ""}, stable, false},
		{cluster.Labels{"track": "stable"}, nil, false},
	} {
		e := cluster.Endpoint{Tags: tt.tags}
		if got := e.Selects(tt.labels); got != tt.want {
			t.Errorf("tags %v of labels %v: got %v, want %v", tt.tags, tt.labels, got, tt.want)
		}
	}
}

// TestEndpointPort checks the port of an endpoint against the definition of the service.
func TestEndpointPort(t *testing.T) {
	e := cluster.Endpoint{Name: "web-http", Service: "web", Port: "http"}
	def := cluster.TaskDefinition{Name: "web", Version: 2}
	got := []string{e.CheckDefinition(&def).Error()}
	def.Ports = []cluster.Port{{Name: "admin"}, {Name: "metrics"}}
	got = append(got, e.CheckDefinition(&def).Error())
	def.Ports = append(def.Ports, cluster.Port{Name: "http"})
	got = append(got, e.CheckDefinition(&def).Error())
	want := []string{
		"port: is http, and the definition web@2 of service web has no port of this name: it has no ports: add one to " +
			"the definition",
		"port: is http, and the definition web@2 of service web has no port of this name: want one of admin, metrics",
		"",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

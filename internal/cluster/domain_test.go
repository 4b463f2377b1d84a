package cluster_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

// TestDomainFaults checks that a wrong domain is refused with all faults at once.
func TestDomainFaults(t *testing.T) {
	second, hour := cluster.Duration(time.Second), cluster.Duration(time.Hour)
	for _, tt := range []struct {
		name string
		in   cluster.Domain
		want []string
	}{
		{"empty", cluster.Domain{Name: "ci"}, nil},
		{"whole", cluster.Domain{
			Name: "ci", Pools: []string{"a", "b"},
			Silence:    &cluster.Silence{Suspect: 5 * second, Down: hour, Services: hour, Jobs: 24 * hour},
			Projection: cluster.ProjectionImmediate,
		}, nil},
		{"longer suspect alone", cluster.Domain{Name: "ci", Silence: &cluster.Silence{Suspect: hour}}, nil},
		{"faults", cluster.Domain{
			Name: "C I", Pools: []string{"a", "B", "a"},
			Silence:    &cluster.Silence{Suspect: 2 * hour, Down: hour, Services: second, Jobs: 25 * hour},
			Projection: "soon",
		}, []string{
			`name: "C I" is not a name`, `pools[1]: "B" is not a name`, "pools[2]: names the pool a again",
			"silence.services: is 1s, want 5s to 24h", "silence.jobs: is 25h, want 5s to 24h",
			"silence.down: is 1h, and a node is suspect after 2h: want at least as long",
			"silence.services: is 1s, and a node is suspect after 2h",
			`projection: is "soon", want one of delayed, immediate`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) { checkFaults(t, tt.in.Validate(), tt.want) })
	}
}

// TestSilenceLimits fills in the limits that a domain leaves out; none is below that of a suspect node.
func TestSilenceLimits(t *testing.T) {
	minute := cluster.Duration(time.Minute)
	for _, tt := range []struct {
		in   *cluster.Silence
		want cluster.Silence
	}{
		{nil, cluster.Silence{Suspect: minute / 3, Down: minute, Services: minute, Jobs: 5 * minute}},
		{
			&cluster.Silence{Suspect: 2 * minute},
			cluster.Silence{Suspect: 2 * minute, Down: 2 * minute, Services: 2 * minute, Jobs: 5 * minute},
		},
		{
			&cluster.Silence{Jobs: 60 * minute},
			cluster.Silence{Suspect: minute / 3, Down: minute, Services: minute, Jobs: 60 * minute},
		},
	} {
		if diff := cmp.Diff(tt.want, tt.in.Limits()); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", tt.in, diff)
		}
	}
}

// TestPlanNumbers keeps the plans of two domains apart, and all numbers exact in readers of JSON.
func TestPlanNumbers(t *testing.T) {
	if last := cluster.FirstPlan(cluster.MaxDomainNumber+1) - 1; last != 1<<53-1 {
		t.Errorf("the last number is %d, want 2^53 - 1", last)
	}
	for _, domain := range []uint64{0, 1, 7, cluster.MaxDomainNumber} {
		first, end := cluster.FirstPlan(domain), cluster.FirstPlan(domain+1)
		if cluster.DomainOfPlan(first) != domain || cluster.DomainOfPlan(end-1) != domain {
			t.Errorf("plans %d and %d are of the domains %d and %d, want %d", first, end-1,
				cluster.DomainOfPlan(first), cluster.DomainOfPlan(end-1), domain)
		}
	}
}

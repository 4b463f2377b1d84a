package cluster_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

func TestReservationFaults(t *testing.T) {
	from := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	good := cluster.Reservation{Name: "r", Nodes: []string{"n1"}, From: from, Until: from.Add(time.Hour)}
	for _, test := range []struct {
		name   string
		change func(*cluster.Reservation)
		want   []string
	}{
		{"none", func(*cluster.Reservation) {}, nil},
		{"all together", func(r *cluster.Reservation) {
			r.Name, r.Nodes, r.Pool, r.Until = "R", nil, "P", from
			r.Clusters, r.Lead = []string{"a", "B"}, -1
			r.Constraints = []cluster.Constraint{{Attribute: "strange", Value: "x"}}
		}, []string{
			"name", "nodes", "pool", "constraints", "pool", "constraints[0].attribute", "constraints[0].op",
			"until", "lead", "clusters[1]",
		}},
		{"a node twice", func(r *cluster.Reservation) {
			r.Nodes = []string{"n1", "n1", ""}
		}, []string{"nodes[1]", "nodes[2]"}},
		{"too long", func(r *cluster.Reservation) {
			r.Until = from.Add(2 * cluster.MaxReservationSpan)
		}, []string{"until"}},
		{"chosen nodes", func(r *cluster.Reservation) { r.Nodes, r.Count, r.Pool = nil, 3, "gpu" }, nil},
		{"too many", func(r *cluster.Reservation) { r.Count = cluster.MaxReservedNodes + 1 }, []string{"count"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := good
			test.change(&r)
			var got []string
			for _, f := range cluster.FaultsOf(r.Validate()) {
				got = append(got, f.Path)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("faults (-want +got):\n%s\n%v", diff, r.Validate())
			}
		})
	}
}

func TestReservationAdmits(t *testing.T) {
	labels := cluster.Labels{"team": "ml", "tier": "1"}
	for _, test := range []struct {
		name  string
		r     cluster.Reservation
		named string
		want  bool
	}{
		{"for who names it", cluster.Reservation{Name: "r"}, "r", true},
		{"only for workloads that name it", cluster.Reservation{Name: "r"}, "", false},
		{"another one is named", cluster.Reservation{Name: "r", Clusters: []string{"c"}}, "s", false},
		{"by cluster", cluster.Reservation{Name: "r", Clusters: []string{"b", "c"}}, "", true},
		{"another cluster", cluster.Reservation{Name: "r", Clusters: []string{"b"}}, "", false},
		{"to name it is not enough", cluster.Reservation{Name: "r", Clusters: []string{"b"}}, "r", false},
		{"by labels", cluster.Reservation{Name: "r", Labels: cluster.Labels{"team": "ml"}}, "", true},
		{"all labels", cluster.Reservation{Name: "r", Labels: cluster.Labels{"team": "ml", "tier": "2"}}, "", false},
		{
			"both",
			cluster.Reservation{Name: "r", Clusters: []string{"b"}, Labels: cluster.Labels{"team": "ml"}},
			"",
			false,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.r.Admits("c", labels, test.named); got != test.want {
				t.Errorf("admitted: %v, want %v", got, test.want)
			}
		})
	}
}

func TestReservationRefuses(t *testing.T) {
	from := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	r := cluster.Reservation{From: from, Until: from.Add(time.Hour), Lead: cluster.Duration(30 * time.Minute)}
	for _, test := range []struct {
		name  string
		at    time.Duration
		limit time.Duration
		want  bool
		next  time.Duration // after from; -1 is the zero time
	}{
		{"long before", -2 * time.Hour, 0, false, -30 * time.Minute},
		{"long before, but it would not end in time", -2 * time.Hour, 3 * time.Hour, true, -30 * time.Minute},
		{"it would just end in time", -2 * time.Hour, 2 * time.Hour, false, -30 * time.Minute},
		{"in the lead", -30 * time.Minute, 0, true, 0},
		{"in the lead, and over in time", -30 * time.Minute, 20 * time.Minute, false, 0},
		{"from the begin", 0, time.Minute, true, time.Hour},
		{"to the end", time.Hour - 1, 0, true, time.Hour},
		{"over", time.Hour, 0, false, -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			now := from.Add(test.at)
			if got := r.Refuses(now, cluster.Duration(test.limit)); got != test.want {
				t.Errorf("refused: %v, want %v", got, test.want)
			}
			next := from.Add(test.next)
			if test.next == -1 {
				next = time.Time{}
			}
			if got := r.Next(now); !got.Equal(next) {
				t.Errorf("next is %v, want %v", got, next)
			}
		})
	}
}

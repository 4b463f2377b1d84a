package controlplane

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// Placements are distributed over as few plan records as the engine's limits allow. A gang stays together: if it is too
// large for a record with projections, its record has none.
func TestPlanBatches(t *testing.T) {
	type group struct {
		gang           string
		tasks, attempt int
	}
	for _, test := range []struct {
		name      string
		immediate bool
		groups    []group
		want      []string // tasks of each record, with + for a projected one
	}{
		{"single tasks", false, []group{{"", 300, 1}}, []string{"300"}},
		{"single tasks, projected", true, []group{{"", 100, 1}}, []string{"38+", "38+", "24+"}},
		{"retries", false, []group{{"", 50, 2}}, []string{"38", "12"}},
		{"retries, projected", true, []group{{"", 50, 2}}, []string{"23+", "23+", "4+"}},
		{"a gang that fits", true, []group{{"", 10, 1}, {"g", 30, 1}, {"", 2, 1}}, []string{"10+", "32+"}},
		{"a gang that fits the rest", true, []group{{"", 10, 1}, {"g", 20, 1}, {"", 2, 1}}, []string{"32+"}},
		{"a gang that fits exactly", true, []group{{"g", 39, 1}, {"", 1, 1}}, []string{"39+", "1+"}},
		{
			"a gang that is too large", true,
			[]group{{"", 10, 1}, {"g", 30, 2}, {"", 2, 1}},
			[]string{"10+", "30", "2+"},
		},
		{"two gangs", true, []group{{"g", 20, 2}, {"h", 20, 2}}, []string{"20+", "20+"}},
		{"two gangs that are too large", true, []group{{"g", 24, 2}, {"h", 24, 2}}, []string{"24", "24"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			engine := memory.New(memory.Options{Consul: true})
			tables := store.NewTables(store.TablesConfig{Engine: engine, Logger: slog.New(slog.DiscardHandler)})
			prefix := store.Prefix(store.DefaultPrefix)
			c := planCommits{log: store.NewPlanLog(store.NewWriter(engine, prefix, nil, nil), tables, 0)}
			var pending []cluster.Pending
			var placements []scheduler.Placement
			var ids []string
			for i, g := range test.groups {
				for n := range g.tasks {
					pending = append(pending, cluster.Pending{
						Task: cluster.JobTask("c", fmt.Sprint("j", i), 1, "s", n), Attempt: g.attempt, Gang: g.gang,
						Owner: cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "j"}, OwnerRev: 7,
					})
					placements = append(placements, scheduler.Placement{Pending: len(pending) - 1, Node: "n1"})
					ids = append(ids, fmt.Sprint(len(ids)))
				}
			}
			var got []string
			next := 0
			for _, b := range c.makePlanBatches(tables.Snapshot(), pending, placements, ids, test.immediate) {
				mark := map[bool]string{true: "+"}[b.Projected]
				got = append(got, fmt.Sprint(b.Tasks(), mark))
				for _, o := range b.Owners {
					for _, placed := range o.Tasks {
						if placed.UUID != fmt.Sprint(next) {
							t.Fatalf("attempt %s is number %d", placed.UUID, next)
						}
						next++
					}
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" || next != len(ids) {
				t.Errorf("%d of %d attempts (-want +got):\n%s", next, len(ids), diff)
			}
		})
	}
}

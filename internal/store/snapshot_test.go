package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

// TestStrategy shows the precedence: the placement's strategy, then the pool's, then the cluster's.
func TestStrategy(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.put(p.Cluster("packs"), &cluster.Cluster{Name: "packs", Strategy: cluster.StrategyBinpack})
		w.put(p.Cluster("plain"), &cluster.Cluster{Name: "plain"})
		w.put(p.Pool("gpu"), &cluster.Pool{Name: "gpu", Strategy: cluster.StrategyWhole})
		w.put(p.Pool("open"), &cluster.Pool{Name: "open"})
		snap := w.now()
		for _, c := range []struct {
			cluster string
			p       cluster.Placement
			want    cluster.Strategy
		}{
			{"packs", cluster.Placement{Strategy: cluster.StrategySpread, Pool: "gpu"}, cluster.StrategySpread},
			{"packs", cluster.Placement{Pool: "gpu"}, cluster.StrategyWhole},
			{"packs", cluster.Placement{Pool: "open"}, cluster.StrategyBinpack},
			{"packs", cluster.Placement{Pool: "unknown"}, cluster.StrategyBinpack},
			{"packs", cluster.Placement{}, cluster.StrategyBinpack},
			{"plain", cluster.Placement{}, ""},
			{"plain", cluster.Placement{Pool: "gpu"}, cluster.StrategyWhole},
			{"gone", cluster.Placement{}, ""},
		} {
			if got := snap.Strategy(c.cluster, &c.p); got != c.want {
				t.Errorf("%+v in %s: got %q, want %q", c.p, c.cluster, got, c.want)
			}
		}
	})
}

// TestPools lists the pools with settings. Forgotten nodes are in no pool.
func TestPools(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.put(p.Pool("gpu"), &cluster.Pool{Name: "gpu"})
		w.put(p.Pool("a"), &cluster.Pool{Name: "a", Strategy: cluster.StrategyBinpack})
		for name, h := range map[string]cluster.Host{
			"n1": {Pool: "gpu"}, "n2": {Pool: "gpu"}, "n3": {Pool: "gpu", Gone: true}, "n4": {Pool: "new"}, "n5": {},
		} {
			h.Name = name
			w.put(p.Host(name), &h)
		}
		snap := w.now()
		var got []string
		for e := range snap.Pools() {
			got = append(got, e.Value.Name)
		}
		if diff := cmp.Diff([]string{"a", "gpu"}, got); diff != "" {
			t.Errorf("pools (-want +got):\n%s", diff)
		}
		if _, ok := snap.Pool("new"); ok {
			t.Error("a pool that only a node names has settings")
		}
		if diff := cmp.Diff(map[string]int{"gpu": 2, "new": 1}, snap.PoolSizes()); diff != "" {
			t.Errorf("nodes of pools (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"n1", "n2"}, snap.PoolNodes("gpu")); diff != "" {
			t.Errorf("nodes of gpu (-want +got):\n%s", diff)
		}
	})
}

// TestDomains shows where a node belongs, and that each domain numbers its plans by itself.
func TestDomains(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.put(p.Domain("ci"), &cluster.Domain{Name: "ci", Number: 2, Pools: []string{"runners"}})
		w.put(p.Domain("foreign"), &cluster.Domain{Name: "foreign"})
		for name, h := range map[string]cluster.Host{
			"n1": {}, "n2": {Domain: "ci"}, "n3": {Pool: "runners"}, "n4": {Pool: "runners", Domain: "default"},
			"n5": {Pool: "runners", Domain: "foreign"}, "n6": {Pool: "gpu"},
		} {
			h.Name = name
			w.put(p.Host(name), &h)
		}
		first := cluster.FirstPlan(2)
		for _, seq := range []uint64{1, 2, first + 1, first + 7, cluster.FirstPlan(3) + 1} {
			w.put(p.Plan(seq), &cluster.PlanRecord{Seq: seq})
		}
		snap := w.now()
		got := map[string]string{}
		for _, node := range []string{"n1", "n2", "n3", "n4", "n5", "n6", "unknown"} {
			got[node] = snap.WantedDomain(node)
		}
		if diff := cmp.Diff(map[string]string{
			"n1": "default", "n2": "ci", "n3": "ci", "n4": "ci", "n5": "foreign", "n6": "default", "unknown": "default",
		}, got); diff != "" {
			t.Errorf("domains of nodes (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"ci", "default", "foreign"}, snap.Domains()); diff != "" {
			t.Errorf("domains (-want +got):\n%s", diff)
		}
		for domain, want := range map[uint64]uint64{0: 2, 1: cluster.FirstPlan(1), 2: first + 7} {
			if got := snap.LastPlan(domain); got != want {
				t.Errorf("the last plan of domain %d is %d, want %d", domain, got, want)
			}
		}
		var plans []uint64
		for e := range snap.Plans(2) {
			plans = append(plans, e.Value.Seq)
		}
		if diff := cmp.Diff([]uint64{first + 1, first + 7}, plans); diff != "" {
			t.Errorf("plans of domain 2 (-want +got):\n%s", diff)
		}
		if _, ok := snap.DomainNumber("foreign"); ok {
			t.Error("a domain without a number has one")
		}
		if got := snap.PlansWritten(); got != 2+7 {
			t.Errorf("%d plans were written, want 9", got)
		}
	})
}

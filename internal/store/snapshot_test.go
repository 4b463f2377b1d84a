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
		w.put(p.Domain(cluster.DefaultDomain),
			&cluster.DomainSettings{Name: cluster.DefaultDomain, Pools: []cluster.Pool{
				{Name: "early", Strategy: cluster.StrategySpread},
				{Name: "gpu", Strategy: cluster.StrategySpread},
				{Name: "open", Strategy: cluster.StrategySpread},
			}})
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
			{"packs", cluster.Placement{Pool: "early"}, cluster.StrategySpread},
			{"packs", cluster.Placement{Pool: "unknown"}, cluster.StrategyBinpack},
			{"packs", cluster.Placement{}, cluster.StrategyBinpack},
			{"plain", cluster.Placement{}, ""},
			{"plain", cluster.Placement{Pool: "gpu"}, cluster.StrategyWhole},
			{"gone", cluster.Placement{}, ""},
		} {
			if got := snap.Strategy(cluster.DefaultDomain, c.cluster, &c.p); got != c.want {
				t.Errorf("%+v in %s: got %q, want %q", c.p, c.cluster, got, c.want)
			}
		}
	})
}

// TestPools shows where the settings of pools are read: in the pool's own record, else in the record of the domain,
// where builds before pool/<p> wrote them. Forgotten nodes are in no pool.
func TestPools(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.put(p.Domain(cluster.DefaultDomain),
			&cluster.DomainSettings{Name: cluster.DefaultDomain, Pools: []cluster.Pool{
				{Name: "early", Strategy: cluster.StrategySpread}, {Name: "gpu", Strategy: cluster.StrategySpread},
			}})
		w.put(p.Pool("gpu"), &cluster.Pool{Name: "gpu"})
		w.put(p.Pool("a"), &cluster.Pool{Name: "a", Strategy: cluster.StrategyBinpack})
		for name, h := range map[string]cluster.Host{
			"n1": {Pool: "gpu"}, "n2": {Pool: "gpu"}, "n3": {Pool: "gpu", Gone: true}, "n4": {Pool: "new"}, "n5": {},
		} {
			h.Name = name
			w.put(p.Host(name), &h)
		}
		snap := w.now()
		type pool struct {
			cluster.Pool
			HasRecord bool
		}
		var got []pool
		for _, e := range snap.Pools(cluster.DefaultDomain) {
			got = append(got, pool{*e.Value, e.Modified != 0})
			if one, ok := snap.Pool(cluster.DefaultDomain, e.Value.Name); !ok || *one.Value != *e.Value ||
				one.Modified != e.Modified {
				t.Errorf("%s alone is %+v, %v", e.Value.Name, one, ok)
			}
		}
		want := []pool{
			{cluster.Pool{Name: "a", Strategy: cluster.StrategyBinpack}, true},
			{cluster.Pool{Name: "early", Strategy: cluster.StrategySpread}, false},
			{cluster.Pool{Name: "gpu"}, true},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pools (-want +got):\n%s", diff)
		}
		if _, ok := snap.Pool(cluster.DefaultDomain, "new"); ok {
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

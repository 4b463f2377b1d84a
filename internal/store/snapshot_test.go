package store_test

import (
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

// TestStrategy shows the precedence: the placement's strategy, then the pool's, then the cluster's.
func TestStrategy(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.put(p.Cluster("packs"), &cluster.Cluster{Name: "packs", Strategy: cluster.StrategyBinpack})
		w.put(p.Cluster("plain"), &cluster.Cluster{Name: "plain"})
		w.put(p.Domain(cluster.DefaultDomain),
			&cluster.DomainSettings{Name: cluster.DefaultDomain, Pools: []cluster.PoolSettings{
				{Name: "gpu", Strategy: cluster.StrategyWhole}, {Name: "open"},
			}})
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
			if got := snap.Strategy(cluster.DefaultDomain, c.cluster, &c.p); got != c.want {
				t.Errorf("%+v in %s: got %q, want %q", c.p, c.cluster, got, c.want)
			}
		}
	})
}

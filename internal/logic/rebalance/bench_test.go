package rebalance_test

import (
	"fmt"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/rebalance"
)

// crowded is a fleet where a tenth of the nodes is new and empty.
func crowded(nodes, tasks, services int, p cluster.Placement) *world {
	w := &world{}
	for i := range nodes {
		w.node(fmt.Sprintf("n%04d", i), 32, 128, "zone", string(rune('a'+i%5)))
	}
	old := nodes * 9 / 10
	for s := range services {
		var at []string
		for i := range tasks / services {
			at = append(at, fmt.Sprintf("n%04d", (s*7919+i*104729)%old))
		}
		w.service(fmt.Sprintf("s%d", s), p, one(cluster.MilliCPU(500+250*(s%7)), 2+s%5), at...)
	}
	return w
}

// BenchmarkRebalance measures 1,000 nodes with 10,000 tasks.
func BenchmarkRebalance(b *testing.B) {
	for _, c := range []struct {
		name     string
		services int
		p        cluster.Placement
	}{
		{"spread/services=200", 200, cluster.Placement{}},
		{"spread/services=10000", 10_000, cluster.Placement{}},
		{"zones/services=200", 200, cluster.Placement{Spread: []cluster.Spread{{Attribute: "label.zone"}}}},
		{"binpack/services=200", 200, cluster.Placement{Strategy: cluster.StrategyBinpack}},
		{"whole/services=200", 200, cluster.Placement{Strategy: cluster.StrategyWhole}},
	} {
		in := crowded(1000, 10_000, c.services, c.p).input()
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			moves, bounded := 0, 0
			for b.Loop() {
				res := rebalance.Rebalance(in, rebalance.Options{})
				moves = len(res.Moves)
				if res.Bounded {
					bounded = 1
				}
			}
			b.ReportMetric(float64(moves), "moves")
			b.ReportMetric(float64(bounded), "bounded")
		})
	}
}

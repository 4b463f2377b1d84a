package cluster_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
)

func TestPoolFaults(t *testing.T) {
	for _, tt := range []struct {
		name string
		pool cluster.Pool
		want []string // paths
	}{
		{"settings", cluster.Pool{Name: "gpu", Strategy: cluster.StrategyWhole}, nil},
		{"no settings", cluster.Pool{Name: "gpu"}, nil},
		{"no name", cluster.Pool{Strategy: cluster.StrategyWhole}, []string{"name"}},
		{"all together", cluster.Pool{Name: "GPU", Strategy: "pile"}, []string{"name", "strategy"}},
	} {
		var got []string
		for _, f := range cluster.FaultsOf(tt.pool.Validate()) {
			got = append(got, f.Path)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: faults (-want +got):\n%s", tt.name, diff)
		}
	}
}

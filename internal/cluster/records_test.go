package cluster_test

import (
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

func TestServerReads(t *testing.T) {
	for _, c := range []struct {
		min, max, version int
		want              bool
	}{
		{1, 2, 1, true}, {1, 2, 2, true}, {1, 2, 3, false}, {2, 3, 1, false},
	} {
		s := cluster.Server{RecordsMin: c.min, Records: c.max}
		if got := s.Reads(c.version); got != c.want {
			t.Errorf("a build that reads %d to %d reads %d: got %v", c.min, c.max, c.version, got)
		}
	}
}

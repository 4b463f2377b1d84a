package index

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
)

// TestShape checks that capacities are rounded down only slightly.
func TestShape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		have := rapid.Int64Range(0, maxAmount).Draw(t, "capacity")
		got := int64(ShapeOf(cluster.Demand{Memory: cluster.Bytes(have)}).Memory)
		if got > have || got < have-have/32 || have < 64 && got != have {
			t.Fatalf("%d is rounded to %d", have, got)
		}
	})
}

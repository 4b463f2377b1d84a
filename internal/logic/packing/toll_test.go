package packing

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
)

// TestSharpen looks at every amount of a small world: a bound of an interval is never above the least of it and, where steps were made, hardly below: by what tables are
// rounded by, where the interval covers whole steps.
func TestSharpen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := anyMix(t).Worth()
		w.tables[0].cpu.step = rapid.Int64Range(1, 40).Draw(t, "step")
		var before, after []Device
		for range rapid.IntRange(1, 10).Draw(t, "devices") {
			v := Device{Free: rapid.IntRange(0, cluster.WholeDevice).Draw(t, "share")}
			before = append(before, v)
			v.Free = rapid.IntRange(0, v.Free).Draw(t, "left")
			after = append(after, v)
		}
		s, o := w.Stock(before), w.Stock(after)
		takes := cluster.Demand{CPU: cluster.MilliCPU(rapid.Int64Range(0, 200).Draw(t, "takes"))}
		toll := MakeToll(&s, &o, takes)
		from := rapid.Int64Range(0, 500).Draw(t, "from")
		to := from + rapid.Int64Range(0, 5000).Draw(t, "to")
		toll.cpu.sharpen(from, to, nil)
		for range 20 {
			low := rapid.Int64Range(from, to).Draw(t, "low")
			high := rapid.Int64Range(low, to).Draw(t, "high")
			least := int64(math.MaxInt64)
			for x := low; x <= high; x++ {
				least = min(least, toll.cpu.of(x))
			}
			if got := toll.cpu.least(low, high); got > least {
				t.Fatalf("from %d to %d: got %d, want at most %d", low, high, got, least)
			}
		}
	})
}

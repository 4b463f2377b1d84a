package packing

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
)

// TestSharpen looks at every amount of a small world: a bound of an interval is never above the least of it and, where
// steps were made, hardly below: by what tables are rounded by, where the interval covers whole steps.
func TestSharpen(t *testing.T) {
	whole := 0
	rapid.Check(t, func(t *rapid.T) {
		w := anyMix(t).Worth()
		w.tables[0].cpu.step = rapid.SampledFrom([]int64{1, 7, 40, 1000, 3001}).Draw(t, "step")
		var before, after []Device
		for range rapid.IntRange(1, 10).Draw(t, "devices") {
			v := Device{Free: rapid.IntRange(0, cluster.WholeDevice).Draw(t, "share")}
			before = append(before, v)
			v.Free = rapid.IntRange(0, v.Free).Draw(t, "left")
			after = append(after, v)
		}
		s, o := w.Stock(before), w.Stock(after)
		step := w.tables[0].cpu.step
		takes := cluster.Demand{CPU: cluster.MilliCPU(rapid.Int64Range(0, 5*step).Draw(t, "takes"))}
		toll := MakeToll(&s, &o, takes)
		from := rapid.Int64Range(0, 30*step).Draw(t, "from")
		to := from + rapid.Int64Range(0, 90*step).Draw(t, "to")
		toll.cpu.sharpen(from, to, nil)
		for range 20 {
			low := rapid.Int64Range(from, to).Draw(t, "low")
			high := rapid.Int64Range(low, min(low+5*step, to)).Draw(t, "high")
			// whole steps
			if width := toll.cpu.before.width; width > 0 && high/width > low/width && low/width*width >= from {
				low, high = low/width*width, high/width*width-1
			}
			least := int64(math.MaxInt64)
			for x := low; x <= high; x++ {
				least = min(least, toll.cpu.of(x))
			}
			got, rounded := toll.cpu.least(low, high), int64(0)
			if got > least {
				t.Fatalf("from %d to %d: got %d, want at most %d", low, high, got, least)
			}
			if c := &toll.cpu; len(c.steps) > 0 && c.before.pieces == c.after.pieces && low%c.before.width == 0 &&
				(high+1)%c.before.width == 0 {
				whole++
				for i := range int64(limitSteps) {
					rounded = max(rounded, c.before.row(i)-c.before.row(i+1)+c.after.row(i)-c.after.row(i+1))
				}
				// A step ends where the next begins, so the amount behind the last one counts, too.
				if least = min(least, c.of(high+1)); got < least-int64(c.before.pieces)*(4+2*rounded>>(2*subBits)) {
					t.Fatalf("from %d to %d: got %d, want %d", low, high, got, least)
				}
			}
		}
	})
	if whole == 0 {
		t.Error("no interval of whole steps was looked at")
	}
}

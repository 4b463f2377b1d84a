package packing

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
)

// TestTighten checks every amount of a small range. A bound of an interval never exceeds its minimum. After Tighten it
// is lower only by rounding, where the interval covers whole steps.
func TestTighten(t *testing.T) {
	whole := 0
	rapid.Check(t, func(t *rapid.T) {
		w := anyMix(t).ValueModel()
		w.tables[0].cpu.step = rapid.SampledFrom([]int64{1, 7, 40, 1000, 3001}).Draw(t, "step")
		var before, after []Device
		for range rapid.IntRange(1, 10).Draw(t, "devices") {
			v := Device{Free: rapid.IntRange(0, cluster.WholeDevice).Draw(t, "share")}
			before = append(before, v)
			v.Free = rapid.IntRange(0, v.Free).Draw(t, "left")
			after = append(after, v)
		}
		s, o := w.DeviceValue(before), w.DeviceValue(after)
		step := w.tables[0].cpu.step
		takes := cluster.Demand{CPU: cluster.MilliCPU(rapid.Int64Range(0, 5*step).Draw(t, "takes"))}
		bound := NewCostBound(&s, &o, takes)
		from := rapid.Int64Range(0, 30*step).Draw(t, "from")
		to := from + rapid.Int64Range(0, 90*step).Draw(t, "to")
		bound.cpu.tighten(from, to, nil)
		for range 20 {
			low := rapid.Int64Range(from, to).Draw(t, "low")
			high := rapid.Int64Range(low, min(low+5*step, to)).Draw(t, "high")
			// whole steps
			if width := bound.cpu.before.width; width > 0 && high/width > low/width && low/width*width >= from {
				low, high = low/width*width, high/width*width-1
			}
			least := int64(math.MaxInt64)
			for x := low; x <= high; x++ {
				least = min(least, bound.cpu.at(x))
			}
			got, rounded := bound.cpu.least(low, high), int64(0)
			if got > least {
				t.Fatalf("from %d to %d: got %d, want at most %d", low, high, got, least)
			}
			if c := &bound.cpu; len(c.bounds) > 0 && c.before.pieces == c.after.pieces && low%c.before.width == 0 &&
				(high+1)%c.before.width == 0 {
				whole++
				for i := range int64(limitSteps) {
					rounded = max(rounded, c.before.row(i)-c.before.row(i+1)+c.after.row(i)-c.after.row(i+1))
				}
				// A step ends where the next starts, so the amount after the last one counts, too.
				least = min(least, c.at(high+1))
				if got < least-int64(c.before.pieces)*(4+2*rounded>>(2*stepPartBits)) {
					t.Fatalf("from %d to %d: got %d, want %d", low, high, got, least)
				}
			}
		}
	})
	if whole == 0 {
		t.Error("no interval of whole steps was checked")
	}
}

package backfill_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/berthd/berth/internal/logic/backfill"
)

// BenchmarkDecide decides at an event, with three resources, 1,000 running jobs and the given number of waiting ones.
func BenchmarkDecide(b *testing.B) {
	for _, waiting := range []int{100, 1_000, 10_000, 100_000} {
		in := benchInput(1_000, waiting)
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if d := backfill.Decide(in); d.Head == nil {
					b.Fatal("nothing waits")
				}
			}
		})
	}
}

// BenchmarkHistory learns an ended job and predicts the next one, with 1,000 owners.
func BenchmarkHistory(b *testing.B) {
	h := backfill.NewHistory(10_000)
	kinds := make([]backfill.Kind, 3_000)
	for i := range kinds {
		kinds[i] = backfill.Kind{Owner: fmt.Sprint("owner", i%1000), Name: fmt.Sprint("job", i%3), Shape: "8"}
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		k := kinds[i%len(kinds)]
		i++
		h.Learn(backfill.Ended{Kind: k, Ran: time.Minute, Limit: time.Hour})
		h.Expect(k, time.Hour)
	}
}

// benchInput returns a nearly full machine. The sizes and limits of its jobs span three orders of magnitude.
func benchInput(running, waiting int) backfill.Input {
	r := rand.New(rand.NewPCG(1, 2))
	between := func(least, most int64) int64 { return least + r.Int64N(most-least+1) }
	in := backfill.Input{Now: noon(), Capacity: backfill.Amounts{0, 0, 512}}
	for i := range running {
		j := runs(fmt.Sprintf("run-%06d", i), 0, int(between(1, 3000)))
		j.Demand = backfill.Amounts{between(1, 64), between(1, 256), 0}
		in.Capacity[0] += j.Demand[0]
		in.Capacity[1] += j.Demand[1]
		in.Running = append(in.Running, j)
	}
	in.Capacity[0] += 200
	in.Capacity[1] += 800
	for i := range waiting {
		w := waits(fmt.Sprintf("wait-%06d", i), 0, int(between(0, 6000)), int(between(5, 3000)))
		w.Demand = backfill.Amounts{between(1, 1000), between(1, 4000), between(0, 8)}
		w.Expected = w.Limit * time.Duration(between(1, 100)) / 100
		w.PriorityAfter = 48 * time.Hour
		in.Waiting = append(in.Waiting, w)
	}
	return in
}

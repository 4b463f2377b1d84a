package main

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/berthd/berth/internal/cluster"
)

// TestForecastOfKnownRunTimes checks that a forecast is exact where nothing is unknown: its queue is that of the
// policy, on one node of many processors as well as on many nodes of one.
func TestForecastOfKnownRunTimes(t *testing.T) {
	for i := range 20 * uint64(len(forecastQueues)) {
		q, seed := forecastQueues[i%uint64(len(forecastQueues))], i/uint64(len(forecastQueues))
		tr := syntheticTrace(seed+201, 150, 64, 0.8)
		random := rand.New(rand.NewPCG(seed, 3))
		for i := range tr.jobs { // no two ends by limits at the same time: EASY counts them differently
			tr.jobs[i].arrived = 0
			tr.jobs[i].limit = tr.jobs[i].run + random.Int64N(tr.jobs[i].run*2+1000)
		}
		for _, nodes := range []bool{false, true} {
			if nodes && q == cluster.QueueFair { // a job of one task gets other promises than a gang
				continue
			}
			f := newForecaster(q, 0, 1)
			f.nodes, f.known = nodes, true
			waits, err := replay(tr, f)
			if err != nil {
				t.Fatal(err)
			}
			if len(f.made) == 0 {
				t.Fatal("no job waited")
			}
			for _, m := range f.made {
				procs := tr.jobs[m.job].procs
				if want := waits[m.job]; m.from != want || m.median != want || m.to != want {
					t.Errorf("%s, seed %d, nodes %t: job %d of %d processors is forecast for %d, %d, %d and starts at %d",
						q, seed, nodes, m.job, procs, m.from, m.median, m.to, want)
				}
			}
		}
	}
}

// TestCoverage checks the share of starts in their intervals on synthetic traces of seeds that were not used for the
// choice of parameters. A single trace is short, so the test compares the sum.
func TestCoverage(t *testing.T) {
	for _, q := range forecastQueues {
		count, hit, every := 0, 0, 3
		if q != cluster.QueueEASY { // a forecast takes longer
			every = 6
		}
		for seed := range uint64(4) {
			tr := syntheticTrace(seed+101, 600, 64, 0.8)
			f := newForecaster(q, 100, every)
			waits, err := replay(tr, f)
			if err != nil {
				t.Fatal(err)
			}
			c := f.measureStarts(tr, waits, true)
			t.Logf("%s: %s: %+v", q, tr.name, c)
			count, hit = count+c.count, hit+c.count-c.early-c.late
		}
		if share := 100 * float64(hit) / float64(count); count < 100 || share < 85 || share > 95 {
			t.Errorf("%s: %.1f %% of %d starts are in their intervals, want 85 to 95", q, share, count)
		}
	}
}

func TestForecastTraces(t *testing.T) {
	log := syntheticTrace(1, 20, 64, 0.8)
	var names []string
	for _, tr := range forecastTraces([]*trace{log}, 10) {
		names = append(names, tr.name)
	}
	if len(names) != 7 || !slices.Contains(names, log.name+", second half") {
		t.Errorf("got %q", names)
	}
}

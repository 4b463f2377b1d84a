package forecast_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/logic/forecast"
)

// draws returns a hundred quantiles of a distribution for a task that has run for a time, the least first.
func draws(r *forecast.Runs, ran time.Duration) (all []time.Duration) {
	for i := range 100 {
		all = append(all, r.Draw(float64(i)/100, ran))
	}
	return all
}

func TestRuns(t *testing.T) {
	tests := forecast.Kind{Cluster: "c", Job: "tests", Step: "unit"}
	h := forecast.NewHistory(100)
	for range 30 {
		h.Learn(tests, forecast.Sample{Ran: 10 * time.Minute, Limit: time.Hour})
	}
	t.Run("similar tasks", func(t *testing.T) {
		if got := draws(h.Runs(tests, time.Hour), 0)[50]; got != 10*time.Minute {
			t.Errorf("median %s, want 10m", got)
		}
		if got := draws(h.Runs(tests, 2*time.Hour), 0)[50]; got != 20*time.Minute {
			t.Errorf("median with twice the limit %s, want the same share of it", got)
		}
		if got := draws(h.Runs(tests, 0), 0)[50]; got != 10*time.Minute {
			t.Errorf("median without a limit %s, want 10m", got)
		}
	})
	t.Run("wider groups", func(t *testing.T) {
		for _, k := range []forecast.Kind{
			{Cluster: "c", Job: "tests", Step: "other"}, {Cluster: "c", Job: "other"}, {Cluster: "other"},
		} {
			if got := draws(h.Runs(k, time.Hour), 0)[50]; got != 10*time.Minute {
				t.Errorf("%v: median %s, want 10m", k, got)
			}
		}
	})
	t.Run("running tasks", func(t *testing.T) {
		for _, ran := range []time.Duration{0, 5 * time.Minute, 11 * time.Minute, 59 * time.Minute} {
			all := draws(h.Runs(tests, time.Hour), ran)
			if !slices.IsSorted(all) || all[0] <= ran || all[99] > time.Hour {
				t.Errorf("after %s: %v, want more than that and at most the limit", ran, all)
			}
		}
		if all := draws(h.Runs(tests, 0), 100*time.Hour); all[0] <= 100*time.Hour {
			t.Errorf("after 100 hours %s", all[0])
		}
	})
	t.Run("nothing known", func(t *testing.T) {
		all := draws(forecast.NewHistory(0).Runs(tests, time.Hour), 0)
		if all[0] > 3*time.Minute || all[50] < 25*time.Minute || all[50] > 35*time.Minute || all[99] != time.Hour {
			t.Errorf("%v, want all shares of the limit", all)
		}
	})
	t.Run("bounded", func(t *testing.T) {
		h := forecast.NewHistory(8)
		for i := range 1000 {
			job := forecast.Kind{Cluster: "c", Job: string(rune('a' + i%26))}
			h.Learn(job, forecast.Sample{Ran: time.Duration(i) * time.Second})
		}
		last := forecast.Kind{Cluster: "c", Job: string(rune('a' + 999%26))}
		if got := draws(h.Runs(last, 0), 0); !slices.Contains(got, 999*time.Second) {
			t.Errorf("the last sample is forgotten: %v", got)
		}
	})
}

// TestRunsSameAsModel compares distributions of run times with the definition: a run time is that of a sample of the
// step with probability n/(n+6), else one of the job, of the cluster, of all, or the prior.
func TestRunsSameAsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := func(what string) string { return rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, what) }
		draw := func() forecast.Kind {
			return forecast.Kind{Cluster: "c" + name("cluster"), Job: "j" + name("job"), Step: "s" + name("step")}
		}
		limit := func() time.Duration {
			return time.Duration(rapid.SampledFrom([]int{0, 60, 100}).Draw(t, "limit")) * time.Minute
		}
		type sample struct {
			forecast.Kind
			forecast.Sample
		}
		h := forecast.NewHistory(1000)
		var learned []sample
		for range rapid.IntRange(0, 60).Draw(t, "samples") {
			s := sample{draw(), forecast.Sample{Limit: limit()}}
			s.Ran = time.Duration(rapid.IntRange(1, 60).Draw(t, "ran")) * time.Minute
			learned = append(learned, s)
			h.Learn(s.Kind, s.Sample)
		}
		asked, under := draw(), limit()
		weights, rest := map[time.Duration]float64{}, 1.0
		for _, similar := range []func(k forecast.Kind) bool{
			func(k forecast.Kind) bool { return k == asked },
			func(k forecast.Kind) bool { return k.Cluster == asked.Cluster && k.Job == asked.Job },
			func(k forecast.Kind) bool { return k.Cluster == asked.Cluster },
			func(forecast.Kind) bool { return true },
		} {
			var of []sample
			for _, s := range learned {
				if similar(s.Kind) {
					of = append(of, s)
				}
			}
			of = of[max(0, len(of)-forecast.KeptSamples):]
			part := rest / float64(len(of)+6)
			for _, s := range of {
				run := s.Ran
				if s.Limit > 0 && under > 0 && s.Limit != under {
					run = time.Duration(float64(s.Ran) / float64(s.Limit) * float64(under))
				}
				if under > 0 {
					run = min(run, under)
				}
				weights[run] += part
				rest -= part
			}
		}
		for i := 1; i <= 20; i++ {
			run := under * time.Duration(i) / 20
			if under == 0 {
				run = time.Second << ((i - 1) * 17 / 20)
			}
			weights[run] += rest / 20
		}
		runs := h.Runs(asked, under)
		ran := time.Duration(rapid.IntRange(0, 50).Draw(t, "has run")) * time.Minute
		left := slices.DeleteFunc(slices.Sorted(maps.Keys(weights)), func(run time.Duration) bool { return run <= ran })
		total := 0.0
		for _, run := range left {
			total += weights[run]
		}
		const near = 1e-9 // sums are rounded
		below := 0.0
		for _, run := range left {
			part := weights[run] / total
			for _, u := range []float64{below + near, below + part/2, below + part - near} {
				if u < below+near/2 || u > below+part-near/2 {
					continue // the part is too small
				}
				if got := runs.Draw(u, ran); got != run {
					t.Fatalf("quantile %v of %v under %s after %s: %s, want %s", u, asked, under, ran, got, run)
				}
			}
			below += part
		}
	})
}

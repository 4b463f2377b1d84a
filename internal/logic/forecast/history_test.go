package forecast_test

import (
	"slices"
	"testing"
	"time"

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

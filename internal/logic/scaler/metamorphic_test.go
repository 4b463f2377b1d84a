package scaler_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scaler"
)

// TestEstimatesThatCount: the order of the estimates does not matter, nor do those that the caller need not remember
// any more, as long as one is left that it has to.
func TestEstimatesThatCount(t *testing.T) {
	older := 0
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		d := scaler.Decide(in)
		keep := scaler.Keep(in.Spec.Scaling)
		recent := slices.DeleteFunc(slices.Clone(in.Estimates), func(e scaler.Estimate) bool {
			return in.Now.Sub(e.At) >= keep
		})
		counts := func(e scaler.Estimate) bool { return e.At.After(in.Spec.Updated) }
		if slices.ContainsFunc(in.Estimates, counts) && !slices.ContainsFunc(recent, counts) {
			return // only older ones say that this caller was there a window ago
		}
		if len(recent) < len(in.Estimates) {
			older++
		}
		in.Estimates = rapid.Permutation(recent).Draw(t, "order")
		if again := scaler.Decide(in); countAfter(in, again) != countAfter(in, d) {
			t.Fatalf("%d without %d older estimates, else %d", countAfter(in, again), len(in.Estimates)-len(recent),
				countAfter(in, d))
		}
	})
	if older == 0 {
		t.Error("no estimate ever was older than it has to be kept")
	}
}

// TestTimeAloneDoesNotMatter: a decision depends on differences of times alone.
func TestTimeAloneDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		d := scaler.Decide(in)
		want := countAfter(in, d)
		by := time.Duration(rapid.IntRange(1, 1e6).Draw(t, "later")) * time.Second
		spec := *in.Spec
		spec.Updated = spec.Updated.Add(by)
		in.Spec, in.Now = &spec, in.Now.Add(by)
		in.Estimates, in.Fired, in.Measured = slices.Clone(in.Estimates), slices.Clone(in.Fired),
			slices.Clone(in.Measured)
		for i := range in.Estimates {
			in.Estimates[i].At = in.Estimates[i].At.Add(by)
		}
		for i := range in.Measured {
			in.Measured[i].At = in.Measured[i].At.Add(by)
		}
		for i := range in.Fired {
			if !in.Fired[i].IsZero() {
				in.Fired[i] = in.Fired[i].Add(by)
			}
		}
		if in.Scale != nil {
			s := *in.Scale
			s.At, s.Recent = s.At.Add(by), slices.Clone(s.Recent)
			if !s.Fired.IsZero() {
				s.Fired = s.Fired.Add(by)
			}
			for i := range s.Recent {
				s.Recent[i].At = s.Recent[i].At.Add(by)
			}
			in.Scale = &s
		}
		later := scaler.Decide(in)
		if !later.NextDecision.IsZero() {
			later.NextDecision = later.NextDecision.Add(-by)
		}
		if countAfter(in, later) != want || later.Message != d.Message ||
			!later.NextDecision.Equal(d.NextDecision) || later.Estimate.Count != d.Estimate.Count {
			t.Fatalf("%+v, and %s later %+v", d, by, later)
		}
	})
}

// TestOrderOfTargets: which target is named first does not matter for the count.
func TestOrderOfTargets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		want := countAfter(in, scaler.Decide(in))
		spec, scaling := *in.Spec, *in.Spec.Scaling
		scaling.Targets, in.Measured = slices.Clone(scaling.Targets), slices.Clone(in.Measured)
		slices.Reverse(scaling.Targets)
		slices.Reverse(in.Measured)
		spec.Scaling = &scaling
		in.Spec = &spec
		if got := countAfter(in, scaler.Decide(in)); got != want {
			t.Fatalf("%d tasks, and %d with the targets in another order", want, got)
		}
	})
}

// TestObstacleToGrowth: with an obstacle the count is never larger than before, and where it does not grow the obstacle
// changes nothing.
func TestObstacleToGrowth(t *testing.T) {
	held, free := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		was := in.Spec.At(in.Scale).Count
		d := scaler.Decide(in)
		in.GrowthObstacle = "no permission"
		kept := scaler.Decide(in)
		if countAfter(in, d) > was {
			if held++; countAfter(in, kept) != was || kept.Event != nil {
				t.Fatalf("from %d to %d with an obstacle: %+v", was, countAfter(in, kept), kept.Event)
			}
			return
		}
		free++
		if diff := cmp.Diff(d, kept); diff != "" {
			t.Fatalf("nothing grows, and the obstacle changes it:\n%s", diff)
		}
	})
	if held == 0 || free == 0 {
		t.Errorf("%d services were held and %d did not grow", held, free)
	}
}

// TestSteadyState: a service whose load is exactly at its target keeps its count, for each metric and any count. A load
// within the tolerance does too, and one beyond it changes the count in its direction.
func TestSteadyState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := 1 + upTo(t, "count", 99)
		zero := cluster.Duration(0)
		target := cluster.ScaleTarget{
			Metric: pick(t, "metric", cluster.ScaleCPU, cluster.ScaleMemory, cluster.ScaleRequests,
				cluster.ScalePrometheus),
			Target: rapid.Float64Range(0.01, 1000).Draw(t, "target"), Whole: rapid.Bool().Draw(t, "whole"),
		}
		share := pick(t, "share", 0.1, 0.5, 0.89, 0.91, 1, 1.09, 1.11, 2, 10)
		m := scaler.Measured{Known: true, Tasks: count, Value: share * target.Target}
		if target.Metric == cluster.ScalePrometheus && !target.Whole {
			m.Value *= float64(count)
		}
		in := scaler.Input{
			Spec: &cluster.Service{Cluster: "c", Name: "web", Count: count, Scaling: &cluster.Scaling{
				Max: cluster.MaxCount, Targets: []cluster.ScaleTarget{target},
				Up: cluster.ScalePace{Window: &zero}, Down: cluster.ScalePace{Window: &zero},
			}},
			Measured: []scaler.Measured{m}, Now: epoch(),
		}
		want := count
		if math.Abs(share-1) > scaler.Tolerance {
			want = max(1, int(math.Ceil(share*float64(count)-1e-6)))
		}
		if got := countAfter(in, scaler.Decide(in)); got != want {
			t.Fatalf("%d tasks at %v of their target become %d, want %d", count, share, got, want)
		}
	})
}

package scaler_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scaler"
)

func pick[T any](t *rapid.T, name string, from ...T) T { return rapid.SampledFrom(from).Draw(t, name) }

func upTo(t *rapid.T, name string, most int) int { return rapid.IntRange(0, most).Draw(t, name) }

func drawPace(t *rapid.T) (p cluster.ScalePace) {
	if w := pick(t, "window", -1, 0, 10, 60, 600); w >= 0 {
		d := cluster.Duration(w) * cluster.Duration(time.Second)
		p.Window = &d
	}
	p.Step = pick(t, "step", nil, nil, &cluster.Portion{N: 1}, &cluster.Portion{N: 3},
		&cluster.Portion{N: 50, Percent: true})
	p.Every = cluster.Duration(upTo(t, "every", 300)) * cluster.Duration(time.Second)
	return p
}

// drawService draws a service with one to three targets, and schedules.
func drawService(t *rapid.T) *cluster.Service {
	s := &cluster.Service{Cluster: "c", Name: "web", Count: upTo(t, "count", 40), Scaling: &cluster.Scaling{
		Min: upTo(t, "min", 5), Up: drawPace(t), Down: drawPace(t),
	}}
	s.Scaling.Max = s.Scaling.Min + upTo(t, "more", 40)
	s.Updated = epoch().Add(-time.Duration(upTo(t, "age", 3600)) * time.Second)
	for range 1 + upTo(t, "targets", 2) {
		s.Scaling.Targets = append(s.Scaling.Targets, cluster.ScaleTarget{
			Metric: pick(t, "metric", cluster.ScaleCPU, cluster.ScaleRequests, cluster.ScalePrometheus),
			Target: rapid.Float64Range(0.1, 200).Draw(t, "target"), Whole: rapid.Bool().Draw(t, "whole"),
		})
	}
	for range upTo(t, "schedules", 2) {
		var sch cluster.ScaleSchedule
		for _, n := range []**int{&sch.Min, &sch.Max, &sch.Count} {
			if rapid.Bool().Draw(t, "names it") {
				v := upTo(t, "number", 40)
				*n = &v
			}
		}
		s.Scaling.Schedules = append(s.Scaling.Schedules, sch)
	}
	return s
}

func drawMeasured(t *rapid.T) scaler.Measured {
	return scaler.Measured{
		Value: pick(t, "value", 0, 0.5, 10, 50, 69, 100, 1e9, -1, math.NaN(), math.Inf(1)),
		Known: upTo(t, "unknown", 3) > 0,
		At:    epoch().Add(-time.Duration(upTo(t, "age", 300)) * time.Second), Tasks: upTo(t, "tasks", 45),
	}
}

func drawInput(t *rapid.T) scaler.Input {
	in := scaler.Input{Spec: drawService(t), Now: epoch()}
	for range in.Spec.Scaling.Targets {
		in.Measured = append(in.Measured, drawMeasured(t))
	}
	for range in.Spec.Scaling.Schedules {
		at := epoch().Add(-time.Duration(upTo(t, "fired", 7200)) * time.Second)
		in.Fired = append(in.Fired, pick(t, "has fired", time.Time{}, at))
	}
	for range upTo(t, "estimates", 10) {
		in.Estimates = append(in.Estimates, scaler.Estimate{
			At: epoch().Add(-time.Duration(upTo(t, "estimated", 900)) * time.Second), Count: upTo(t, "estimate", 50),
		})
	}
	if rapid.Bool().Draw(t, "has a scale") {
		in.Scale = &cluster.Scale{
			Count: upTo(t, "scale", 40), From: pick(t, "from", in.Spec.Count, in.Spec.Count, in.Spec.Count+1),
			At: epoch().Add(-time.Hour),
		}
		to := in.Scale.Count
		for i := range upTo(t, "recent", cluster.MaxScaleChanges) {
			c := cluster.ScaleChange{
				At: epoch().Add(-time.Duration(20*i+1) * time.Second), From: upTo(t, "was", 40),
				To: to,
			}
			in.Scale.Recent, to = append(in.Scale.Recent, c), c.From
		}
	}
	return in
}

// countAfter returns the count in force once a decision is written.
func countAfter(in scaler.Input, d scaler.Decision) int {
	if d.Scale != nil {
		in.Scale = d.Scale
	}
	return in.Spec.At(in.Scale).Count
}

// bounds returns the bounds in force, computed in the simplest way.
func bounds(in scaler.Input) (low, high int) {
	low, high = in.Spec.Scaling.Min, in.Spec.Scaling.Max
	for i, s := range in.Spec.Scaling.Schedules {
		newest := !in.Fired[i].IsZero()
		for _, other := range in.Fired {
			newest = newest && !other.After(in.Fired[i])
		}
		if newest && s.Min != nil {
			low = *s.Min
		}
		if newest && s.Max != nil {
			high = *s.Max
		}
	}
	return low, max(low, high)
}

// TestPromises checks the rules for every decision.
func TestPromises(t *testing.T) {
	grown, shrunk, kept := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		d := scaler.Decide(in)
		if diff := cmp.Diff(d, scaler.Decide(in)); diff != "" {
			t.Fatalf("the same input, another decision, or the first changed it:\n%s", diff)
		}
		was, now := in.Spec.At(in.Scale).Count, countAfter(in, d)
		if low, high := bounds(in); now < low || now > high {
			t.Fatalf("%d is not within %d and %d: %+v", now, low, high, d)
		}
		switch {
		case now > was:
			grown++
		case now < was:
			shrunk++
		default:
			kept++
		}
		if (now != was) != (d.Event != nil) || now != was && d.Scale.Message == "" {
			t.Fatalf("from %d to %d, with event %+v, %+v", was, now, d.Event, d.Scale)
		}
		if d.Scale != nil && (len(d.Scale.Recent) > cluster.MaxScaleChanges || d.Scale.From != in.Spec.Count) {
			t.Fatalf("a record that violates its limits: %+v", d.Scale)
		}
		if !d.NextDecision.IsZero() && !d.NextDecision.After(in.Now) {
			t.Fatalf("decide again at %s, which is not later than now", d.NextDecision)
		}
		in.Scale = d.Scale
		in.Estimates = append(in.Estimates, d.Estimate)
		if d.Scale != nil && in.Spec.Scaling.Up.Step == nil && in.Spec.Scaling.Down.Step == nil {
			for i := range in.Measured { // without measurements nothing changes
				in.Measured[i].Known = false
			}
			if again := scaler.Decide(in); again.Scale != nil && again.Scale.Count < d.Scale.Count {
				t.Fatalf("from %d to %d without a metric", d.Scale.Count, again.Scale.Count)
			}
		}
	})
	if grown < 5 || shrunk < 5 || kept < 5 {
		t.Errorf("%d decisions grew, %d shrank and %d kept the count: too few of one kind to show anything", grown,
			shrunk, kept)
	}
}

// TestMonotone raises one metric: the count never shrinks. In most random inputs something else decides the count: the
// bounds, a window, a schedule or another metric. So in half of them the metric decides alone, and raising it shows.
func TestMonotone(t *testing.T) {
	differ := 0
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		i := upTo(t, "which", len(in.Measured)-1)
		if rapid.Bool().Draw(t, "alone") {
			i, in = 0, decidedByMetric(in, in.Spec.Scaling.Targets[i])
		}
		target := in.Spec.Scaling.Targets[i].Target
		low := scaler.Measured{
			Value: target * rapid.Float64Range(0, 3).Draw(t, "low"), Known: true,
			Tasks: 1 + upTo(t, "measured", 40),
		}
		high := low
		high.Value += target * rapid.Float64Range(0, 3).Draw(t, "more")
		in.Measured[i] = low
		a := countAfter(in, scaler.Decide(in))
		in.Measured[i] = high
		b := countAfter(in, scaler.Decide(in))
		if b < a {
			t.Fatalf("%v needs %d and %v needs %d", low.Value, a, high.Value, b)
		}
		if b > a {
			differ++
		}
	})
	if differ < 10 {
		t.Errorf("the metric made a difference in %d cases: too few to show anything", differ)
	}
}

// decidedByMetric returns the input with one target alone, and without windows, pace, schedules and estimates.
func decidedByMetric(in scaler.Input, target cluster.ScaleTarget) scaler.Input {
	zero := cluster.Duration(0)
	spec, scaling := *in.Spec, *in.Spec.Scaling
	scaling.Targets, scaling.Schedules = []cluster.ScaleTarget{target}, nil
	scaling.Up, scaling.Down = cluster.ScalePace{Window: &zero}, cluster.ScalePace{Window: &zero}
	scaling.Min, scaling.Max = 0, 200
	spec.Scaling = &scaling
	in.Spec, in.Fired, in.Estimates, in.Measured = &spec, nil, nil, in.Measured[:1]
	return in
}

// TestConverges runs a service with a constant load. The count reaches a value that carries the load and stays there.
func TestConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawService(t)
		s.Scaling.Schedules, s.Scaling.Targets = nil, s.Scaling.Targets[:1]
		s.Scaling.Max = 60
		s.Scaling.Up.Every, s.Scaling.Down.Every = min(s.Scaling.Up.Every, cluster.DefaultScaleEvery),
			min(s.Scaling.Down.Every, cluster.DefaultScaleEvery)
		target := &s.Scaling.Targets[0]
		target.Whole = false
		load := rapid.Float64Range(0, 50).Draw(t, "load") // in tasks that are exactly at the target
		var scale *cluster.Scale
		var estimates []scaler.Estimate
		now, settled := epoch(), 0
		count := s.Count
		for range 500 {
			now = now.Add(15 * time.Second)
			m := scaler.Measured{Known: true, At: now, Tasks: count, Value: load * target.Target}
			if target.Metric != cluster.ScalePrometheus {
				m.Value /= float64(max(1, count))
			}
			d := scaler.Decide(scaler.Input{
				Spec: s, Scale: scale, Measured: []scaler.Measured{m}, Estimates: estimates,
				Now: now,
			})
			if d.Scale != nil {
				scale = d.Scale
			}
			estimates = append(estimates, d.Estimate)
			for now.Sub(estimates[0].At) > scaler.Keep(s.Scaling) {
				estimates = estimates[1:]
			}
			settled++
			if n := s.At(scale).Count; n != count {
				count, settled = n, 0
			}
		}
		if settled < 60 {
			t.Fatalf("the count changed %d decisions before the end, and is %d for a load of %v", settled, count, load)
		}
		low := min(max(load/(1+scaler.Tolerance), float64(s.Scaling.Min)), 60)
		high := max(math.Ceil(load/(1-scaler.Tolerance)), float64(s.Scaling.Min), 1)
		if count > 0 && (float64(count) < low || float64(count) > high) {
			t.Fatalf("%d tasks for a load of %v", count, load)
		}
	})
}

// TestPaceLimitsChanges: within Every the count never is further than a step from an earlier value, as long as all
// changes within Every are remembered.
func TestPaceLimitsChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawService(t)
		s.Scaling.Schedules, s.Scaling.Targets = nil,
			[]cluster.ScaleTarget{{Metric: cluster.ScalePrometheus, Target: 1}}
		s.Scaling.Min, s.Scaling.Max, s.Count = 1, 1000, 1+upTo(t, "begin", 39)
		zero := cluster.Duration(0)
		s.Scaling.Up = cluster.ScalePace{
			Window: &zero, Step: &cluster.Portion{N: 1 + upTo(t, "up", 4)},
			Every: cluster.Duration(5 * time.Minute),
		}
		s.Scaling.Down = cluster.ScalePace{
			Window: &zero, Step: &cluster.Portion{N: 1 + upTo(t, "down", 4)},
			Every: cluster.Duration(5 * time.Minute),
		}
		var scale *cluster.Scale
		counts := []int{s.Count}
		for i := range 120 { // one decision every ten seconds: thirty in each span
			in := scaler.Input{Spec: s, Scale: scale, Now: epoch().Add(time.Duration(i) * 10 * time.Second)}
			in.Measured = []scaler.Measured{{Known: true, Value: float64(upTo(t, "load", 60))}}
			if d := scaler.Decide(in); d.Scale != nil {
				scale = d.Scale
			}
			counts = append(counts, s.At(scale).Count)
			if scale != nil && len(scale.Recent) == cluster.MaxScaleChanges {
				return
			}
			first := counts[max(0, len(counts)-31)]
			now := counts[len(counts)-1]
			if now > first+s.Scaling.Up.Step.N && now > counts[len(counts)-2] || now < first-s.Scaling.Down.Step.N &&
				now < counts[len(counts)-2] {
				t.Fatalf("from %d to %d within five minutes: %v", first, now, counts)
			}
		}
	})
}

// TestManySmallChangesKeepToThePace: the count before the changes within Every is known for any number of changes.
func TestManySmallChangesKeepToThePace(t *testing.T) {
	s := &cluster.Service{Cluster: "c", Name: "web", Count: 2, Scaling: &cluster.Scaling{
		Min: 1, Max: 50, Targets: []cluster.ScaleTarget{{Metric: cluster.ScalePrometheus, Target: 1}},
		Up: cluster.ScalePace{Step: &cluster.Portion{N: 12}, Every: cluster.Duration(time.Hour)},
	}}
	scale := &cluster.Scale{Count: 12, From: 2}
	for i := range cluster.MaxScaleChanges { // from 2 to 12, the newest first
		at := epoch().Add(-time.Duration(i+1) * time.Minute)
		scale.Recent = append(scale.Recent, cluster.ScaleChange{At: at, From: 11 - i, To: 12 - i})
	}
	now := epoch()
	for _, want := range []int{14, 14, 14} {
		d := scaler.Decide(scaler.Input{
			Spec: s, Scale: scale, Measured: []scaler.Measured{{Known: true, Value: 40}},
			Now: now,
		})
		if d.Scale != nil {
			scale = d.Scale
		}
		if got := s.At(scale).Count; got != want || len(scale.Recent) > cluster.MaxScaleChanges {
			t.Fatalf("%d tasks, want %d, after %d changes: %s", got, want, len(scale.Recent), d.Message)
		}
		now = now.Add(time.Minute)
	}
}

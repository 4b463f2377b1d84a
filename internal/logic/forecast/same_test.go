package forecast_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/logic/forecast"
)

// drawWorld draws a queue of one line with known run times, in which each task fits on an empty node.
func drawWorld(t *rapid.T, policies ...forecast.Policy) *world {
	w := newWorld(rapid.IntRange(1, 4).Draw(t, "nodes"), rapid.SampledFrom(policies).Draw(t, "policy"))
	minutes := func(name string, least int) int { return rapid.IntRange(least, 50).Draw(t, name) }
	for n := range w.Nodes {
		for range rapid.IntRange(0, 2).Draw(t, "running") {
			if free := w.Nodes[n][0]; free > 0 {
				run := minutes("run", 1)
				w.run(int32(n), int64(rapid.IntRange(1, int(free)).Draw(t, "cpu")), run, max(run, minutes("limit", 1)))
			}
		}
	}
	for range rapid.IntRange(1, 8).Draw(t, "waiting") {
		run := minutes("run", 1)
		limit := rapid.SampledFrom([]int{0, run, run + 20}).Draw(t, "limit")
		r := w.wait(int64(rapid.IntRange(1, 4).Draw(t, "cpu")), run, limit)
		r.Tasks = rapid.IntRange(1, 3).Draw(t, "tasks")
		r.Gang = r.Tasks <= len(w.Nodes) && rapid.Bool().Draw(t, "gang")
	}
	return w
}

// all are the policies whose order of requests does not change with time.
var all = []forecast.Policy{forecast.EASY, forecast.FIFO, forecast.Greedy}

// copyOf returns an input that shares nothing that a test changes.
func (w *world) copyOf() *world {
	c := *w
	c.Nodes, c.Lines = slices.Clone(w.Nodes), slices.Clone(w.Lines)
	c.Running, c.Waiting = slices.Clone(w.Running), slices.Clone(w.Waiting)
	return &c
}

// sameStarts compares the forecasts of two inputs.
func sameStarts(t *rapid.T, what string, want, got *world) {
	t.Helper()
	if diff := cmp.Diff(forecast.Forecast(&want.Input), forecast.Forecast(&got.Input)); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

// TestUnitsDoNotMatter checks that the unit and the place of a resource do not matter: with all amounts of a resource
// multiplied, or in another order, the same tasks start at the same times.
func TestUnitsDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, all...)
		order := rapid.Permutation([]int{0, 1, 2, 3, 4, 5}).Draw(t, "order")
		factor := rapid.Int64Range(1, 1<<40).Draw(t, "factor")
		change := func(a forecast.Amounts) (b forecast.Amounts) {
			for d := range a {
				b[order[d]] = a[d]
			}
			b[order[0]] *= factor
			return b
		}
		other := w.copyOf()
		for i := range other.Nodes {
			other.Nodes[i] = change(other.Nodes[i])
		}
		for i := range other.Running {
			other.Running[i].Demand = change(other.Running[i].Demand)
		}
		for i := range other.Waiting {
			other.Waiting[i].Demand = change(other.Waiting[i].Demand)
		}
		sameStarts(t, "other units", w, other)
	})
}

// TestTimesScale checks that a queue in which everything takes so many times as long has its starts so many times as
// late, and that another time of the forecast moves all starts by as much.
func TestTimesScale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, all...)
		factor := rapid.Int64Range(1, 30).Draw(t, "factor")
		slower := func(d time.Duration) time.Duration { return time.Duration(int64(d) * factor) }
		later := time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(t, "later"))
		other := w.copyOf()
		other.Now = w.Now.Add(later)
		for i := range other.Running {
			r := &other.Running[i]
			r.Started, r.Limit = other.Now, slower(r.Limit)
			r.Runs = forecast.Fixed(slower(r.Runs.Draw(0, 0)))
		}
		for i := range other.Waiting {
			r := &other.Waiting[i]
			r.Limit, r.Runs = slower(r.Limit), forecast.Fixed(slower(r.Runs.Draw(0, 0)))
		}
		want := forecast.Forecast(&w.Input)
		move := func(v forecast.Interval) forecast.Interval {
			at := func(start time.Time) time.Time {
				if start.IsZero() {
					return start
				}
				return other.Now.Add(slower(start.Sub(w.Now)))
			}
			return forecast.Interval{From: at(v.From), Median: at(v.Median), To: at(v.To)}
		}
		for i := range want {
			if want[i].First.From.IsZero() {
				continue // it never starts
			}
			want[i].First, want[i].Last = move(want[i].First), move(want[i].Last)
		}
		if diff := cmp.Diff(want, forecast.Forecast(&other.Input)); diff != "" {
			t.Fatalf("starts of a queue that is slower by %d (-want +got):\n%s", factor, diff)
		}
	})
}

// TestOrderOfRunningTasks checks that without promises the order in which running tasks are listed does not matter.
func TestOrderOfRunningTasks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, forecast.FIFO, forecast.Greedy)
		other := w.copyOf()
		other.Running = rapid.Permutation(w.Running).Draw(t, "order")
		sameStarts(t, "another order of running tasks", w, other)
	})
}

// TestTasksOfARequest checks that a request of several tasks starts as that many requests of one task do, one after the
// other, and that a gang of one task is a task.
func TestTasksOfARequest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, all...)
		other := w.copyOf()
		other.Waiting = nil
		var first, last []int
		for _, r := range w.Waiting {
			first = append(first, len(other.Waiting))
			tasks := r.Tasks
			if r.Tasks == 1 {
				r.Gang = !r.Gang
			}
			if !r.Gang {
				r.Tasks = 1
			}
			for n := 0; n < tasks && (n == 0 || !r.Gang); n++ {
				other.Waiting = append(other.Waiting, r)
			}
			last = append(last, len(other.Waiting)-1)
		}
		want, got := forecast.Forecast(&w.Input), forecast.Forecast(&other.Input)
		for i := range want {
			if diff := cmp.Diff(want[i].First, got[first[i]].First); diff != "" {
				t.Fatalf("first task of request %d (-together +apart):\n%s", i, diff)
			}
			if diff := cmp.Diff(want[i].Last, got[last[i]].Last); diff != "" {
				t.Fatalf("last task of request %d (-together +apart):\n%s", i, diff)
			}
		}
	})
}

// TestFIFOLooksAheadAlone checks that first come, first served means that: what comes later does not matter.
func TestFIFOLooksAheadAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, forecast.FIFO)
		other := w.copyOf()
		other.Waiting = other.Waiting[:rapid.IntRange(1, len(w.Waiting)).Draw(t, "requests")]
		got := forecast.Forecast(&w.Input)[:len(other.Waiting)]
		if diff := cmp.Diff(forecast.Forecast(&other.Input), got); diff != "" {
			t.Fatalf("with requests behind it (-without +with):\n%s", diff)
		}
		for i := 1; i < len(got); i++ { // nor does any start before one that is ahead of it
			if !got[i].First.From.IsZero() && got[i].First.From.Before(got[i-1].First.From) {
				t.Fatalf("request %d starts at %s, before request %d", i, got[i].First.From, i-1)
			}
		}
	})
}

// TestNodesOutsideOfLines checks that a node of no line changes nothing, whatever runs there.
func TestNodesOutsideOfLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, all...)
		other := w.copyOf()
		other.Nodes = append(other.Nodes, forecast.Amounts{4, 8})
		other.run(int32(len(other.Nodes)-1), 3, 7, 7)
		other.Lines = append(other.Lines, forecast.Line{Nodes: []int32{int32(len(other.Nodes) - 1)}})
		sameStarts(t, "a node of another line", w, other)
	})
}

// TestFirstOfTheQueueIsNotDelayed checks the promise of EASY: the first request starts no later than by the time limits
// of running tasks alone, whatever waits behind it.
func TestFirstOfTheQueueIsNotDelayed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t, forecast.EASY)
		w.Waiting[0].Tasks, w.Waiting[0].Gang = 1, false
		alone := w.copyOf()
		alone.Waiting = alone.Waiting[:1]
		for i := range alone.Running { // all run up to their limits
			alone.Running[i].Runs = forecast.Fixed(alone.Running[i].Limit)
		}
		want := forecast.Forecast(&alone.Input)[0].First.To
		if got := forecast.Forecast(&w.Input)[0].First.To; got.After(want) {
			t.Fatalf("it starts at %s, want %s at the latest", got, want)
		}
	})
}

// TestRequestsBeyondTheMost checks that only the first requests are forecast, and that those count for each other.
func TestRequestsBeyondTheMost(t *testing.T) {
	w := newWorld(1, forecast.FIFO)
	for range forecast.MaxRequests + 5 {
		w.wait(4, 1, 1)
	}
	got := forecast.Forecast(&w.Input)
	if len(got) != forecast.MaxRequests {
		t.Fatalf("%d forecasts, want %d", len(got), forecast.MaxRequests)
	}
	for _, i := range []int{0, 1, 77} {
		if diff := cmp.Diff(exact(i), got[i].First); diff != "" {
			t.Errorf("request %d (-want +got):\n%s", i, diff)
		}
	}
	w.Waiting = nil
	if got := forecast.Forecast(&w.Input); got != nil {
		t.Errorf("forecasts %v of an empty queue", got)
	}
}

// TestBeyondTheHorizon checks a request for which room comes free after the horizon: the earliest start is known to be
// about there, the others are unknown.
func TestBeyondTheHorizon(t *testing.T) {
	w := newWorld(1, forecast.EASY)
	day := 24 * 60
	w.run(0, 4, 40*day, 50*day)
	w.wait(4, 1, 1)
	w.wait(4, 1, 1)
	got := forecast.Forecast(&w.Input)
	if diff := cmp.Diff(exact(40*day), got[0].First); diff != "" { // the end of a task is known at any time
		t.Errorf("first request (-want +got):\n%s", diff)
	}
	if v := got[1].First; v.From.Before(noon().Add(forecast.Horizon)) || !v.Median.IsZero() || !v.To.IsZero() {
		t.Errorf("second request: %v, want later than the horizon", v)
	}
}

// TestSeeds checks that a forecast is a function of its seed, and that seeds draw different futures.
func TestSeeds(t *testing.T) {
	h := forecast.NewHistory(10)
	k := forecast.Kind{Cluster: "c", Job: "j", Step: "s"}
	for minute := range 40 {
		h.Learn(k, forecast.Sample{Ran: time.Duration(minute) * time.Minute, Limit: time.Hour})
	}
	of := func(seed uint64) forecast.Interval {
		w := newWorld(1, forecast.EASY)
		w.run(0, 4, 0, 60)
		w.Running[0].Runs = h.Runs(k, time.Hour)
		w.wait(4, 10, 10)
		w.Seed = seed
		return forecast.Forecast(&w.Input)[0].First
	}
	different := 0
	for seed := range uint64(10) {
		v := of(seed)
		if diff := cmp.Diff(v, of(seed)); diff != "" {
			t.Errorf("seed %d twice (-first +second):\n%s", seed, diff)
		}
		if v != of(seed+1) {
			different++
		}
		if spread := v.To.Sub(v.From); spread < 20*time.Minute || v.Median.Before(noon().Add(5*time.Minute)) ||
			v.Median.After(noon().Add(45*time.Minute)) {
			t.Errorf("seed %d: %v, want most of the hour with the median about in the middle", seed, v)
		}
	}
	if different < 8 {
		t.Errorf("%d of 10 seeds make a difference", different)
	}
}

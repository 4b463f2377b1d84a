package forecast_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/logic/admission"
	"github.com/berthd/berth/internal/logic/forecast"
)

func noon() time.Time { return time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC) }

// exact is the interval of a start that is certain, in minutes from noon.
func exact(minute int) forecast.Interval {
	at := noon().Add(time.Duration(minute) * time.Minute)
	return forecast.Interval{From: at, Median: at, To: at}
}

// world is a cluster of nodes of four processors and 8 GB of memory.
type world struct{ forecast.Input }

func newWorld(nodes int, policy forecast.Policy) *world {
	w := &world{forecast.Input{Now: noon(), Seed: 1}}
	line := forecast.Line{Policy: policy}
	for n := range nodes {
		w.Nodes = append(w.Nodes, forecast.Amounts{4, 8})
		line.Nodes = append(line.Nodes, int32(n))
	}
	w.Lines = []forecast.Line{line}
	return w
}

// run adds a running task that began at noon.
func (w *world) run(node int32, cpu int64, run, limit int) {
	w.Nodes[node][0] -= cpu
	w.Nodes[node][1] -= cpu
	w.Running = append(w.Running, forecast.Running{
		Node: node, Demand: forecast.Amounts{cpu, cpu}, Started: w.Now, Limit: time.Duration(limit) * time.Minute,
		Runs: forecast.Fixed(time.Duration(run) * time.Minute),
	})
}

// wait adds a request for one task.
func (w *world) wait(cpu int64, run, limit int) *forecast.Request {
	w.Waiting = append(w.Waiting, forecast.Request{
		Demand: forecast.Amounts{cpu, cpu}, Tasks: 1, Limit: time.Duration(limit) * time.Minute,
		Runs: forecast.Fixed(time.Duration(run) * time.Minute),
	})
	return &w.Waiting[len(w.Waiting)-1]
}

func (w *world) check(t *testing.T, want ...forecast.Interval) {
	t.Helper()
	var got []forecast.Interval
	for _, s := range forecast.Forecast(&w.Input) {
		got = append(got, s.First)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("first starts (-want +got):\n%s", diff)
	}
}

// TestPolicies forecasts a queue whose run times are known. Both nodes have one free processor. A task that needs a
// whole node is first: it is promised a node at minute 30, and starts at minute 20, when the task there ends early.
func TestPolicies(t *testing.T) {
	for _, c := range []struct {
		name string
		forecast.Policy
		want []int
	}{
		// the short one ends before the promise, the long one runs on the other node, and the last one waits for it
		{"easy", forecast.EASY, []int{20, 0, 0, 50}},
		// all wait for the first, then for room on the other node
		{"fifo", forecast.FIFO, []int{20, 20, 30, 50}},
		// the last one takes what the first needs
		{"greedy", forecast.Greedy, []int{60, 0, 0, 10}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(2, c.Policy)
			w.run(0, 3, 20, 30)
			w.run(1, 3, 50, 60)
			w.wait(4, 100, 100)
			w.wait(1, 10, 30)
			w.wait(1, 60, 200)
			w.wait(1, 50, 100)
			var want []forecast.Interval
			for _, minute := range c.want {
				want = append(want, exact(minute))
			}
			w.check(t, want...)
		})
	}
}

// TestRoomIsOnNodes checks that free room of several nodes is no room for one task, but for the members of a gang.
func TestRoomIsOnNodes(t *testing.T) {
	w := newWorld(2, forecast.EASY)
	w.run(0, 2, 40, 50)
	w.run(1, 2, 30, 60)
	w.wait(4, 10, 10)
	g := w.wait(2, 10, 10)
	g.Tasks, g.Gang = 2, true
	w.check(t, exact(30), exact(0))
}

// TestRoomThatIsLeft checks that a request finds the room that an equal one left while another was first: the third one
// starts beside the first, as soon as the second has started.
func TestRoomThatIsLeft(t *testing.T) {
	w := newWorld(2, forecast.FIFO)
	w.run(0, 4, 10, 10)
	w.run(1, 4, 20, 20)
	w.wait(2, 100, 100)
	w.wait(4, 100, 100)
	w.wait(2, 100, 100)
	w.check(t, exact(10), exact(20), exact(20))
}

// TestLimitsOfRunningTasksAlone has running tasks of a cluster with a quota, and no request that a limit concerns.
func TestLimitsOfRunningTasksAlone(t *testing.T) {
	w := newWorld(1, forecast.EASY)
	w.run(0, 4, 10, 10)
	w.Running[0].Limited = []admission.Holding{{Cluster: "other"}}
	w.wait(2, 100, 100)
	w.check(t, exact(10))
}

// TestNodesThatFreeRoom checks where the forecast finds the room: on the node of the task that ends, on one of two
// nodes on which tasks end by chance, on all nodes of a gang, and on none for a task that starts now.
func TestNodesThatFreeRoom(t *testing.T) {
	nodes := func(w *world) (all [][]int32) {
		for _, s := range forecast.Forecast(&w.Input) {
			all = append(all, s.Nodes)
		}
		return all
	}
	w := newWorld(4, forecast.Greedy)
	w.run(0, 4, 40, 50)
	w.run(1, 4, 20, 50)
	w.run(2, 3, 60, 80)
	w.run(3, 4, 70, 80)
	w.wait(4, 100, 100) // node 1, at minute 20
	w.wait(1, 100, 100) // node 2, now
	w.wait(4, 100, 100) // node 0, at minute 40
	g := w.wait(2, 10, 10)
	g.Tasks, g.Gang = 3, true // nodes 2 and 3
	w.wait(8, 10, 10)         // never
	if diff := cmp.Diff([][]int32{{1}, nil, {0}, {2, 3}, nil}, nodes(w)); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}

	w = newWorld(8, forecast.Greedy)
	h := forecast.NewHistory(10)
	for minute := range 40 {
		h.Learn(forecast.Kind{Cluster: "c", Job: "j", Step: "s"}, forecast.Sample{
			Ran: time.Duration(minute) * time.Minute, Limit: time.Hour,
		})
	}
	runs := h.Runs(forecast.Kind{Cluster: "c", Job: "j", Step: "s"}, time.Hour)
	for n := range int32(8) {
		w.run(n, 4, 500, 600)
	}
	for _, n := range []int{2, 5} {
		w.Running[n].Runs, w.Running[n].Alone = runs, true
	}
	w.wait(4, 1000, 1000)
	if got := nodes(w)[0]; len(got) == 0 || len(got) > 2 || got[0] != 2 && got[0] != 5 {
		t.Errorf("the task starts on %v, want 2 or 5", got)
	}
	w = newWorld(24, forecast.Greedy)
	for n := range int32(24) {
		w.run(n, 4, 500, 600)
		w.Running[n].Runs, w.Running[n].Alone = runs, true
	}
	w.wait(4, 1000, 1000)
	if got := nodes(w)[0]; got != nil {
		t.Errorf("the task starts on %v, want any node", got)
	}
}

// TestLines checks that a line does not wait for the promise of another one.
func TestLines(t *testing.T) {
	w := newWorld(2, forecast.FIFO)
	w.Lines = []forecast.Line{{Nodes: []int32{0}, Policy: forecast.FIFO}, {Nodes: []int32{1}, Policy: forecast.FIFO}}
	w.run(0, 1, 40, 50)
	w.wait(4, 10, 10)
	w.wait(4, 10, 10).Line = 1
	w.check(t, exact(40), exact(0))
}

// TestTooLarge checks that a request for which there never is room has no forecast, and that others do not wait for it.
func TestTooLarge(t *testing.T) {
	w := newWorld(2, forecast.FIFO)
	w.run(0, 4, 40, 50)
	w.wait(5, 10, 10)
	g := w.wait(4, 10, 10)
	g.Tasks, g.Gang = 3, true
	w.wait(4, 10, 10)
	w.check(t, forecast.Interval{}, forecast.Interval{}, exact(0))
}

// TestManyTasks checks that a request of a million tasks has a bounded cost. Its first task starts at a known time, and
// its last one later than all times that were simulated.
func TestManyTasks(t *testing.T) {
	w := newWorld(2, forecast.EASY)
	w.run(0, 4, 40, 50)
	w.run(1, 4, 45, 50)
	w.wait(1, 10, 10).Tasks = 1_000_000
	w.wait(1, 10, 10)
	got := forecast.Forecast(&w.Input)
	if diff := cmp.Diff(exact(40), got[0].First); diff != "" {
		t.Errorf("first task (-want +got):\n%s", diff)
	}
	for name, v := range map[string]forecast.Interval{"last task": got[0].Last, "behind": got[1].First} {
		if !v.Median.IsZero() || !v.To.IsZero() || v.From.Before(noon().Add(12*time.Hour)) {
			t.Errorf("%s: %v, want later than a time after hours", name, v)
		}
	}
}

// TestArrivals checks that tasks that arrive later count if they come first.
func TestArrivals(t *testing.T) {
	for _, c := range []struct {
		priority int
		want     int
	}{{0, 40}, {6, 70}} {
		w := newWorld(1, forecast.EASY)
		w.run(0, 4, 40, 50)
		w.wait(4, 10, 10)
		w.Past = 24 * time.Hour
		urgent := forecast.Request{
			Demand: forecast.Amounts{4}, Tasks: 1, Limit: time.Hour, Runs: forecast.Fixed(30 * time.Minute),
			Priority: c.priority,
		}
		w.Arrivals = []forecast.Arrival{{Request: urgent, At: 5 * time.Minute}}
		w.check(t, exact(c.want))
	}
}

// TestSJBF checks that the order of a queue follows the response ratio, and that an arrival takes its place in it.
func TestSJBF(t *testing.T) {
	for _, c := range []struct {
		name    string
		waited  time.Duration // by the long task
		arrives time.Duration // when a task of five minutes arrives; 0 for never
		want    []int         // starts of the long task and of two short ones
	}{
		{"the shortest first", time.Hour, 0, []int{80, 70, 60}},
		{"the long one has waited for too long", 30 * time.Hour, 0, []int{60, 170, 160}},
		{"a shorter one arrives", time.Hour, time.Minute, []int{85, 75, 60}},
	} {
		w := newWorld(1, forecast.SJBF)
		w.run(0, 4, 60, 60)
		w.wait(4, 100, 200).Waited = c.waited
		w.wait(4, 10, 20).Waited = time.Minute
		w.wait(4, 10, 10).Waited = time.Minute
		if c.arrives > 0 {
			w.Past = 24 * time.Hour
			w.Arrivals = []forecast.Arrival{{At: c.arrives, Request: forecast.Request{
				Demand: forecast.Amounts{4, 4}, Tasks: 1, Limit: 12 * time.Minute,
				Runs: forecast.Fixed(5 * time.Minute),
			}}}
		}
		t.Run(c.name, func(t *testing.T) { w.check(t, exact(c.want[0]), exact(c.want[1]), exact(c.want[2])) })
	}
}

// TestInterval checks the properties of all forecasts, with run times that are learned.
func TestInterval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := forecast.NewHistory(10)
		kinds := []forecast.Kind{{"c", "a", "s"}, {"c", "b", "s"}, {"d", "a", "s"}}
		for range rapid.IntRange(0, 50).Draw(t, "samples") {
			h.Learn(rapid.SampledFrom(kinds).Draw(t, "kind"), forecast.Sample{
				Ran:   time.Duration(rapid.IntRange(1, 100).Draw(t, "ran")) * time.Minute,
				Limit: time.Duration(rapid.IntRange(0, 1).Draw(t, "limited")) * 2 * time.Hour,
			})
		}
		w := newWorld(rapid.IntRange(1, 4).Draw(t, "nodes"), rapid.SampledFrom(
			[]forecast.Policy{forecast.EASY, forecast.FIFO, forecast.Greedy, forecast.SJBF},
		).Draw(t, "policy"))
		for n := range w.Nodes {
			w.run(int32(n), int64(rapid.IntRange(1, 4).Draw(t, "cpu")), 0, rapid.IntRange(1, 100).Draw(t, "limit"))
			w.Running[n].Runs = h.Runs(kinds[0], w.Running[n].Limit)
		}
		for range rapid.IntRange(1, 20).Draw(t, "waiting") {
			r := w.wait(int64(rapid.IntRange(1, 4).Draw(t, "cpu")), 0, rapid.IntRange(0, 100).Draw(t, "limit"))
			r.Tasks = rapid.IntRange(1, 3).Draw(t, "tasks")
			r.Gang = rapid.Bool().Draw(t, "gang")
			r.Runs = h.Runs(rapid.SampledFrom(kinds).Draw(t, "kind"), r.Limit)
		}
		got := forecast.Forecast(&w.Input)
		if diff := cmp.Diff(got, forecast.Forecast(&w.Input)); diff != "" {
			t.Fatalf("another forecast of the same input:\n%s", diff)
		}
		for i, s := range got {
			if s.First.From.IsZero() && w.Waiting[i].Gang {
				continue // too large
			}
			for _, v := range []forecast.Interval{s.First, s.Last} {
				if v.From.Before(noon()) || !v.Median.IsZero() && v.Median.Before(v.From) ||
					!v.To.IsZero() && v.To.Before(v.Median) {
					t.Fatalf("request %d: %v is no interval", i, v)
				}
				if v.To.IsZero() {
					t.Fatalf("request %d never starts in some future", i)
				}
			}
			if s.Last.From.Before(s.First.From) {
				t.Fatalf("request %d: the last task starts before the first: %v", i, s)
			}
		}
	})
}

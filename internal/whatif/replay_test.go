package whatif_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/traces"
	"github.com/berthd/berth/internal/whatif"
)

// batch returns a trace of jobs, each "arrival, run time, processors" with times in seconds.
func batch(jobs ...string) *traces.Trace {
	t := &traces.Trace{Shapes: []traces.Shape{{CPU: 1000, Memory: cluster.GiB}}}
	for i, text := range jobs {
		var arrives, runs, tasks int
		if _, err := fmt.Sscan(text, &arrives, &runs, &tasks); err != nil {
			panic(err)
		}
		t.Jobs = append(t.Jobs, traces.Job{
			ID: fmt.Sprint(i + 1), Arrived: time.Duration(arrives) * time.Second,
			Run: time.Duration(runs) * time.Second, Tasks: tasks,
		})
	}
	return t
}

// replay replays a trace on a branch of a World's store after changes.
func replay(t *testing.T, w *whatif.World, r whatif.Replay, changes ...api.SimulateChange) *whatif.Traced {
	t.Helper()
	got, err := whatif.RunTrace(t.Context(), whatif.Config{Branch: branch(w), Now: w.Now(), Log: logger()},
		api.SimulateRequest{Changes: changes}, r)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func seconds(n int) cluster.Duration { return cluster.Duration(time.Duration(n) * time.Second) }

// TestReplayTimes replays jobs without limits on ten CPUs, by the policy greedy. The first job uses six of them for 100
// s. The second job needs all ten. It waits for the third job, which arrived later and fits beside the first. It also
// waits for the fourth job, which begins when the third has ended.
func TestReplayTimes(t *testing.T) {
	w := domain(t, api.SimulateChange{AddNodes: &api.SimulateNodes{Name: "n", Count: 10, CPU: "1", Memory: "4GiB"}})
	var progress []whatif.Progress
	got := replay(t, w, whatif.Replay{
		Name: "story", Trace: batch("1000 100 6", "1001 10 10", "1002 90 4", "1002 40 4", "1003 5 10"),
		Queue:    cluster.QueueGreedy,
		Progress: func(p whatif.Progress) { progress = append(progress, p) },
	})
	want := &whatif.Replayed{
		Trace: "story", Jobs: 5, Tasks: 34, Begun: 5, Ended: 5, Lasted: seconds(147),
		// at 0, 132, 2, 92 and 142
		Waits: whatif.Waits{
			Waited: 3, Mean: seconds((131 + 90 + 139) / 5), Median: seconds(90), P99: seconds(139),
			Longest: seconds(139),
		},
		Full: []whatif.Fullness{
			// 6 for 100 s, 4 for 90 and 40, 10 for 10 and 5
			{What: "cpu", Mean: float64((600+360+160+100+50)*10000/1470) / 100, Peak: 100},
			{What: "memory", Mean: float64((600+360+160+100+50)*10000/1470/4) / 100, Peak: 25},
		},
		Busiest: &whatif.Busiest{After: seconds(3), Tasks: 24},
	}
	same := cmp.Options{
		cmp.FilterPath(func(p cmp.Path) bool {
			return p.Last().String() == ".Mean" && p.Index(-2).Type().Name() == "Fullness"
		}, cmp.Comparer(func(a, b float64) bool { return a-b < 0.05 && b-a < 0.05 })),
		cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Why" }, cmp.Ignore()),
		cmp.FilterPath(func(p cmp.Path) bool {
			return p.Last().String() == ".placed" || p.Last().String() == ".ended"
		}, cmp.Ignore()),
	}
	if diff := cmp.Diff(want, got.Replayed, same); diff != "" {
		t.Errorf("replayed (-want +got):\n%s", diff)
	}
	if why := got.Replayed.Busiest.Why; len(why) != 2 || why[0].Tasks != 20 ||
		!strings.Contains(why[0].Sentence, "CPU short") {
		t.Errorf("got %v, want why they wait", why)
	}
	if !got.Fits || !got.Settled || len(got.Tasks) != 0 || len(got.Steps) != 1 || got.Steps[0].Placed != 34 ||
		got.Steps[0].Ended != 34 || got.Steps[0].Change != "replay story" {
		t.Errorf("got %+v, want all come and gone", got.Simulation)
	}
	if len(progress) == 0 || progress[0].Of != 5 {
		t.Errorf("got %+v, want its progress", progress)
	}
	if n := w.Snapshot().AttemptCount(); n != 0 {
		t.Errorf("%d attempts in what it began from, want none", n)
	}
}

// TestLargeJobsFreeTheirRoomAtOnce replays a job of 18 tasks that end together, before three other jobs. The first
// needs all 20 nodes. The second needs 15, and the third 4, and both end before the first can start. If the room of the
// job came free in parts, the third job would start in the first part, and the second would have to wait for it.
func TestLargeJobsFreeTheirRoomAtOnce(t *testing.T) {
	w := domain(t, api.SimulateChange{AddNodes: &api.SimulateNodes{Name: "n", Count: 20, CPU: "1", Memory: "4GiB"}})
	trace := batch("0 1000 2", "1 100 18", "2 10 20", "3 300 15", "4 300 4")
	for i := range trace.Jobs {
		trace.Jobs[i].Limit = max(trace.Jobs[i].Run, 200*time.Second)
	}
	got := map[string]time.Duration{}
	replay(t, w, whatif.Replay{
		Name: "parts", Trace: trace,
		Begun: func(j *traces.Job, waited time.Duration) { got[j.ID] = waited.Round(time.Second) },
	})
	want := map[string]time.Duration{
		"1": 0, "2": 0, "3": 998 * time.Second, "4": 98 * time.Second, "5": 397 * time.Second,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
}

// TestReplayOfBriefJobs replays a job of a second that starts with a long one, so that one plan record has both. The
// records of the brief job go before the plan record, and nothing brings them back.
func TestReplayOfBriefJobs(t *testing.T) {
	w := domain(t, api.SimulateChange{AddNodes: &api.SimulateNodes{Name: "n", Count: 10, CPU: "1", Memory: "4GiB"}})
	got := replay(t, w, whatif.Replay{
		Name: "brief", Trace: batch("0 50 4", "5 100 6", "6 300 8", "7 1 1"), Queue: cluster.QueueFIFO,
	}).Replayed
	if got.Ended != 4 || got.Lasted != seconds(405) || got.Waits.Longest != seconds(99) {
		t.Errorf("got %+v, want that all jobs have ended after 405 s, and that the longest waited for 99 s", got)
	}
}

// TestReplayBesideServices replays after changes and beside services. It reports jobs without an end and jobs without a
// node.
func TestReplayBesideServices(t *testing.T) {
	taken := "kind: Cluster\nname: trace\n"
	w := domain(t, nodes(1), run(t, web), run(t, taken))
	got := replay(t, w, whatif.Replay{
		Name: "x", Trace: batch("0 0 1", "60 0 3", "120 50 1"), Queue: cluster.QueueGreedy,
	},
		api.SimulateChange{AddNodes: &api.SimulateNodes{Name: "m", CPU: "3", Memory: "8GiB"}})
	r := got.Replayed
	if r.Jobs != 3 || r.Begun != 2 || r.Ended != 1 || r.Running != 1 || r.Waiting != 1 || r.Waits.Longest != 0 {
		t.Errorf("got %+v, want one job that runs, one that waits and one that has ended", r)
	}
	if got.Fits || len(got.Waiting) != 1 || got.Waiting[0].New != 3 || len(got.Tasks) != 1 || got.Tasks[0].To != "m" {
		t.Errorf("got %+v, want three waiting tasks, and one on m", got.Simulation)
	}
	if id := got.Tasks[0].Task; id != "trace2.job-1.1.run.0" {
		t.Errorf("got the task %s, want it in a cluster that was not there", id)
	}
	if len(got.Notes) != 1 || !strings.HasPrefix(got.Notes[0], "to place trace2.job-2.1.run.0: ") {
		t.Errorf("got the notes %q, want what would let the first in", got.Notes)
	}
	if r.Full[0].What != "cpu" || r.Full[0].End != 71.43 || r.Full[0].Peak != 85.71 {
		t.Errorf("got %+v, want that what ran before is counted: 5 of 7 CPUs at the end, and 6 at most", r.Full)
	}
}

// TestTraceIsBounded: jobs beyond the limits are left out and counted.
func TestTraceIsBounded(t *testing.T) {
	w := domain(t, nodes(1))
	trace := batch("0 10 1", "10 10 2", "20 10 2", "3600 7200 1")
	for name, c := range map[string]struct {
		replay                     whatif.Replay
		jobs, leftOut, ended, runs int
		cut                        bool
	}{
		"all":              {whatif.Replay{}, 4, 0, 4, 0, false},
		"tasks":            {whatif.Replay{Tasks: 4}, 2, 2, 2, 0, false},
		"arrives too late": {whatif.Replay{Time: 30 * time.Minute}, 3, 1, 3, 0, false},
		"ends too late":    {whatif.Replay{Time: 2 * time.Hour}, 4, 0, 3, 1, true},
		"fill":             {whatif.Replay{Fill: true}, 4, 0, 0, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			c.replay.Trace = trace
			r := replay(t, w, c.replay).Replayed
			if r.Jobs != c.jobs || r.LeftOut != c.leftOut || r.Ended != c.ended || r.Running != c.runs ||
				r.Cut != c.cut {
				t.Errorf("got %+v, want %d jobs, %d left out, %d ended, %d that run, cut %v", r, c.jobs, c.leftOut,
					c.ended, c.runs, c.cut)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := whatif.RunTrace(ctx, whatif.Config{Branch: branch(w), Now: w.Now()}, api.SimulateRequest{}, whatif.Replay{
		Trace: trace, Progress: func(whatif.Progress) { cancel() },
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it ends with its context", err)
	}
}

// TestMachinesOfATraceJoin replays pods with shares of GPUs on the machines of the trace.
func TestMachinesOfATraceJoin(t *testing.T) {
	trace := &traces.Trace{
		Nodes: []traces.Node{
			{Name: "A/0", CPU: 8000, Memory: 16 * cluster.GiB, GPUs: 2, Model: "T4"},
			{Name: "b-1", CPU: 8000, Memory: 16 * cluster.GiB, GPUs: 2, Model: "G2"},
		},
		Shapes: []traces.Shape{{CPU: 1000, GPUs: 1, Share: 500, Models: "T4|G3"}, {CPU: 500, Memory: 1, GPUs: 2}, {}},
	}
	for i, shape := range []int{0, 1, 0, 0, 2, 1, 0, 0} {
		trace.Jobs = append(trace.Jobs, traces.Job{ID: fmt.Sprint("Pod ", i), Shape: shape, Tasks: 1})
	}
	w := domain(t)
	got := replay(t, w, whatif.Replay{
		Name: "pods", Trace: trace, Join: true, Fill: true,
		Strategy: cluster.StrategyBinpack,
	})
	where := map[string][]string{}
	for _, x := range got.Tasks {
		for _, d := range x.Devices {
			where[x.To] = append(where[x.To], fmt.Sprint(d.ID, " ", d.Share))
		}
	}
	want := map[string][]string{
		"trace-00000": {"gpu-00-000 500", "gpu-00-000 500", "gpu-00-001 500", "gpu-00-001 500"},
		"b-1":         {"gpu-00-000 1000", "gpu-00-001 1000"},
	}
	if diff := cmp.Diff(want, where); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	r := got.Replayed
	if r.Begun != 6 || r.Waiting != 2 ||
		r.Full[2] != (whatif.Fullness{What: "devices", Mean: r.Full[2].Mean, Peak: 100, End: 100}) {
		t.Errorf("got %+v, want all GPUs used and two pods that wait", r)
	}
	if got.Steps[0].Change != "add the 2 nodes of the trace" {
		t.Errorf("got the step %q", got.Steps[0].Change)
	}
	_, err := whatif.RunTrace(t.Context(), whatif.Config{Branch: branch(w), Now: w.Now()}, api.SimulateRequest{
		Changes: []api.SimulateChange{{AddNodes: &api.SimulateNodes{Name: "b-1"}}},
	}, whatif.Replay{Trace: trace, Join: true})
	if err == nil || !strings.Contains(err.Error(), "there is a node b-1 already") {
		t.Errorf("got %v, want that the name is taken", err)
	}
}

// TestJobLargerThanAGang: a job with more tasks than a gang may have requests the same resources in fewer, larger
// tasks.
func TestJobLargerThanAGang(t *testing.T) {
	w := domain(t, api.SimulateChange{AddNodes: &api.SimulateNodes{Name: "n", Count: 3, CPU: "1000", Memory: "4TiB"}})
	got := replay(t, w, whatif.Replay{Trace: batch("0 60 2500")})
	if r := got.Replayed; r.Tasks != 834 || r.Ended != 1 || r.Full[0].Peak != 83.4 {
		t.Errorf("got %+v, want 834 tasks of three processors", r)
	}
}

// TestReplayOfAFairQueue replays two users with more jobs than fit, of which the second one comes ten minutes later and
// has larger jobs. In the hour that begins half an hour later, each holds half of the CPUs, within 5 % of it.
func TestReplayOfAFairQueue(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	trace := traces.Trace{Shapes: []traces.Shape{{CPU: 500, Memory: cluster.MiB}, {CPU: 1000, Memory: cluster.MiB}}}
	for user := range 2 {
		for i := range 450 - 260*user {
			trace.Jobs = append(trace.Jobs, traces.Job{
				ID: fmt.Sprintf("u%d-%d", user, i), User: fmt.Sprint(user), Shape: user, Tasks: 1,
				Arrived: time.Duration(user) * 10 * time.Minute, Run: time.Duration(60+random.IntN(1200)) * time.Second,
			})
		}
	}
	w := domain(t, api.SimulateChange{AddNodes: &api.SimulateNodes{Name: "n", Count: 10, CPU: "4", Memory: "4GiB"}})
	var last time.Duration
	used := map[string]float64{} // CPU hours by cluster
	r := whatif.Replay{Name: "fair", Trace: &trace, Queue: cluster.QueueFair}
	var running map[string]float64
	r.Observe = func(now time.Duration, s *store.Snapshot) {
		if last >= 40*time.Minute && last < 100*time.Minute {
			for in, cpus := range running {
				used[in] += cpus * (now - last).Hours()
			}
		}
		last, running = now, map[string]float64{}
		for row := range s.AllAttempts() {
			if parts, _ := row.Task.Parts(); row.Live() {
				running[parts.Cluster] += map[string]float64{"trace-u1": 0.5, "trace-u2": 1}[parts.Cluster]
			}
		}
	}
	got := replay(t, w, r)
	if got.Replayed.Ended != len(trace.Jobs) {
		t.Fatalf("%d of %d jobs have ended", got.Replayed.Ended, len(trace.Jobs))
	}
	for _, in := range []string{"trace-u1", "trace-u2"} {
		if cpus := used[in]; math.Abs(cpus-20) > 1 {
			t.Errorf("%s used %.2f CPUs on average, want 20", in, cpus)
		}
	}
}

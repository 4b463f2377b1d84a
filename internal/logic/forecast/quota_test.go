package forecast_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
	"github.com/berthd/berth/internal/logic/forecast"
)

// limited adds a request of a job of the cluster c, which counts for the limits of the cluster.
func (w *world) limited(name string, tasks int, gang bool, group *cluster.Concurrency) *forecast.Request {
	r := w.wait(1, 10, 10)
	r.Tasks, r.Gang = tasks, gang
	r.Pending = &cluster.Pending{
		Owner: cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: name},
		Task:  cluster.JobTask("c", name, 1, "s", 0), Further: tasks - 1, Demand: cluster.Demand{CPU: 1000},
		Concurrency: group,
	}
	if gang {
		r.Pending.Further, r.Pending.Gang, r.Pending.GangSize = 0, name, tasks
	}
	return r
}

// TestLimitsDelayStarts forecasts a job of three tasks of ten minutes each, and another one behind it, on a node with
// room for all. As many start at a time as the limits of their cluster allow.
func TestLimitsDelayStarts(t *testing.T) {
	for name, c := range map[string]struct {
		quota  *cluster.Quota
		group  *cluster.Concurrency
		gang   bool
		starts [3]int // minutes: of the first and last task of the job, and of the other job; -1 for never
	}{
		"no limit":                {nil, nil, false, [3]int{0, 0, 0}},
		"one task at a time":      {&cluster.Quota{Tasks: 1}, nil, false, [3]int{0, 20, 30}},
		"two tasks at a time":     {&cluster.Quota{Tasks: 2}, nil, false, [3]int{0, 10, 10}},
		"three tasks":             {&cluster.Quota{Tasks: 3}, nil, false, [3]int{0, 0, 10}},
		"two CPUs":                {&cluster.Quota{CPU: 2000}, nil, false, [3]int{0, 10, 10}},
		"less than a CPU":         {&cluster.Quota{CPU: 900}, nil, false, [3]int{-1, -1, -1}},
		"one job at a time":       {&cluster.Quota{Jobs: 1}, nil, false, [3]int{0, 0, 10}},
		"a group of two":          {nil, &cluster.Concurrency{Group: "x", Limit: 2}, false, [3]int{0, 10, 10}},
		"a gang and three tasks":  {&cluster.Quota{Tasks: 3}, nil, true, [3]int{0, 0, 10}},
		"a gang and four tasks":   {&cluster.Quota{Tasks: 4}, nil, true, [3]int{0, 0, 0}},
		"a gang beyond the quota": {&cluster.Quota{Tasks: 2}, nil, true, [3]int{-1, -1, 0}},
		"a gang beyond its group": {nil, &cluster.Concurrency{Group: "x", Limit: 2}, true, [3]int{-1, -1, 0}},
	} {
		w := newWorld(1, forecast.EASY)
		w.Nodes[0] = forecast.Amounts{100, 100}
		var ledger admission.Ledger
		ledger.SetQuota("c", c.quota)
		w.Limits = &ledger
		w.limited("first", 3, c.gang, c.group)
		w.limited("second", 1, false, c.group)
		got := forecast.Forecast(&w.Input)
		for i, v := range []forecast.Interval{got[0].First, got[0].Last, got[1].First} {
			want := forecast.Interval{}
			if c.starts[i] >= 0 {
				want = exact(c.starts[i])
			}
			if diff := cmp.Diff(want, v); diff != "" {
				t.Errorf("%s: start %d (-want +got):\n%s", name, i, diff)
			}
		}
	}
}

// TestHeldLimits checks that running tasks count for the limits until they end, and that tasks of another cluster do
// not.
func TestHeldLimits(t *testing.T) {
	for _, of := range []string{"c", "d"} {
		w := newWorld(2, forecast.EASY)
		w.run(0, 1, 7, 20)
		held := admission.Holding{
			Cluster: of, Job: "old", Task: cluster.JobTask(of, "old", 1, "s", 0), Demand: cluster.Demand{CPU: 1000},
		}
		w.Running[0].Limited = []admission.Holding{held}
		var ledger admission.Ledger
		ledger.SetQuota("c", &cluster.Quota{Tasks: 1})
		ledger.Add(&held, 1)
		w.Limits = &ledger
		before := fmt.Sprint(ledger.Use(of))
		w.limited("new", 1, false, nil)
		want := exact(0)
		if of == "c" {
			want = exact(7)
		}
		w.check(t, want)
		if after := fmt.Sprint(ledger.Use(of)); after != before {
			t.Errorf("the forecast changed what counts for limits from %s to %s", before, after)
		}
	}
}

// TestPlacesOfJobs forecasts three jobs of a concurrency group of jobs, on a node with room for all. A job keeps its
// place from the start of its first task to the end of its last one, and for ever if it has tasks that nothing here
// stands for.
func TestPlacesOfJobs(t *testing.T) {
	const never = -1
	for name, c := range map[string]struct {
		limit   int
		tasks   int    // of the first job, one after the other
		old     string // the job of the running task, which ends after 7 minutes
		lasting string
		starts  [3]int // minutes: of the first tasks of the jobs
	}{
		"one at a time":               {1, 1, "", "", [3]int{0, 10, 20}},
		"two at a time":               {2, 1, "", "", [3]int{0, 0, 10}},
		"three tasks":                 {1, 3, "", "", [3]int{0, 30, 40}},
		"after a running job":         {1, 1, "old", "", [3]int{7, 17, 27}},
		"beside a running job":        {2, 1, "old", "", [3]int{0, 7, 10}},
		"the running task is its own": {1, 2, "first", "", [3]int{0, 20, 30}},
		"a running job that lasts":    {1, 1, "old", "old", [3]int{never, never, never}},
		"a waiting job that lasts":    {1, 1, "", "second", [3]int{0, 10, never}},
	} {
		w := newWorld(1, forecast.EASY)
		w.Nodes[0] = forecast.Amounts{100, 100}
		var ledger admission.Ledger
		w.Limits = &ledger
		if c.old != "" {
			w.run(0, 1, 7, 7)
			held := admission.Holding{
				Cluster: "c", Job: c.old, JobGroup: "x", Task: cluster.JobTask("c", c.old, 1, "s", 9),
				Demand: cluster.Demand{CPU: 1000},
			}
			w.Running[0].Limited = []admission.Holding{held}
			ledger.Add(&held, 1)
			ledger.SetBegun("c", c.old, 1, "x")
		}
		if c.lasting != "" {
			w.Lasting = []cluster.OwnerRef{{Kind: cluster.KindJob, Cluster: "c", Name: c.lasting}}
		}
		one := &cluster.Concurrency{Group: c.old + "s", Limit: 1} // of tasks: one after the other
		for i, job := range []string{"first", "second", "third"} {
			tasks := 1
			if i == 0 {
				tasks = c.tasks
			}
			r := w.limited(job, tasks, false, nil)
			r.Pending.JobConcurrency = &cluster.Concurrency{Group: "x", Limit: c.limit}
			if tasks > 1 {
				r.Pending.Concurrency = one
			}
		}
		got := forecast.Forecast(&w.Input)
		for i := range got {
			want := forecast.Interval{From: got[i].First.From} // not before then
			if c.starts[i] != never {
				want = exact(c.starts[i])
			}
			if diff := cmp.Diff(want, got[i].First); diff != "" {
				t.Errorf("%s: job %d (-want +got):\n%s", name, i, diff)
			}
		}
		if begun := ledger.Begun(); len(begun) > 1 || len(begun) == 1 && begun[0].Job != c.old {
			t.Errorf("%s: the forecast changed the places to %v", name, begun)
		}
	}
}

// TestBacklogOfAGroup checks that many jobs that wait for a place do not keep a forecast from what is behind them.
func TestBacklogOfAGroup(t *testing.T) {
	w := newWorld(1, forecast.EASY)
	w.Nodes[0] = forecast.Amounts{31, 31}
	var ledger admission.Ledger
	w.Limits = &ledger
	for i := range 31 {
		name, group, run := fmt.Sprint("y", i), "y", i+1
		if i == 30 {
			name, group, run = "old", "x", 600
		}
		w.run(0, 1, run, run)
		h := admission.Holding{
			Cluster: "c", Job: name, JobGroup: group, Task: cluster.JobTask("c", name, 1, "s", 0),
			Demand: cluster.Demand{CPU: 1000},
		}
		w.Running[i].Limited = []admission.Holding{h}
		ledger.Add(&h, 1)
		ledger.SetBegun("c", name, 1, group)
	}
	for i := range 1500 {
		r := w.limited(fmt.Sprint("waits", i), 1, false, nil)
		r.Pending.JobConcurrency = &cluster.Concurrency{Group: "x", Limit: 1}
	}
	w.wait(30, 10, 10)
	got := forecast.Forecast(&w.Input)
	if diff := cmp.Diff(exact(30), got[len(got)-1].First); diff != "" {
		t.Errorf("the request behind the jobs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(exact(600), got[0].First); diff != "" {
		t.Errorf("the first job (-want +got):\n%s", diff)
	}
}

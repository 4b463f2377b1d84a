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

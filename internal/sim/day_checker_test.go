package sim

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/sim/ci"
)

// shownJobs is what a leader shows in tests of the checker.
type shownJobs struct {
	reason, explained string
	status            api.JobStatus
}

// Reason implements jobViews.
func (s *shownJobs) Reason(cluster.TaskID) (code cluster.ReasonCode, text string) {
	return cluster.ReasonShortCPU, s.reason
}

// Explain implements jobViews.
func (s *shownJobs) Explain(string, cluster.TaskID) string { return s.explained }

// Status implements jobViews.
func (s *shownJobs) Status(string) (shown api.JobStatus, ok bool) { return s.status, true }

// withDay adds the checker of a day, and a job of two tasks, one of which has succeeded.
func (h *historyWriter) withDay() {
	h.v.day = newDayChecker(h.v, 0)
	h.v.changedJobs = map[string]bool{}
	h.put(prefix.Job(ci.Cluster, "j1"), &cluster.Job{
		Cluster: ci.Cluster, Name: "j1", Lifespan: cluster.Lifespan{Generation: 1},
		Steps: []cluster.Step{{Name: "work", Count: 2}},
	})
	h.endTask("a", 0, cluster.StateSucceeded)
}

// endTask runs a task of the job to an end.
func (h *historyWriter) endTask(uuid string, index int, state cluster.State) {
	d := desired(uuid, index, 1, batch, func(d *cluster.Desired) {
		d.Owner = cluster.OwnerRef{Kind: cluster.KindJob, Cluster: ci.Cluster, Name: "j1"}
		d.Task = cluster.JobTask(ci.Cluster, "j1", 1, "work", index)
	})
	h.want(d)
	h.runs(uuid)
	h.ended(d, state)
}

// sample compares the jobs with what a leader shows, for a while.
func (h *historyWriter) sample(shown *shownJobs, length time.Duration) {
	for range int(length / sampleInterval) {
		time.Sleep(sampleInterval) // in-bubble: the tests make one
		h.v.day.checkJobs(h.v.day.openJobs(), shown)
	}
}

// brokenDays are histories of a day of CI by the invariant that they break.
var brokenDays = map[string]func(h *historyWriter){
	"reason": func(h *historyWriter) {
		h.withDay()
		h.sample(&shownJobs{}, newLeaderAge+2*reasonLag)
	},
	"job-end": func(h *historyWriter) {
		h.withDay()
		h.endTask("b", 1, cluster.StateFailed)
		h.sample(&shownJobs{status: api.JobStatus{
			State: cluster.JobSucceeded, TaskCounts: api.TaskCounts{Total: 2, Succeeded: 2},
		}}, newLeaderAge+2*endLag)
	},
	"fair-share": func(h *historyWriter) { h.holdFairly(map[string]float64{"cat": 1.2}, nil) },
	"job-late": func(h *historyWriter) {
		h.withDay()
		h.v.day.checkEnd()
	},
}

// TestGoodDay has a leader that gives reasons late, but in time, and shows the end of a job as it is. A job that waits
// without a reason during a fault is a breach only after a longer time.
func TestGoodDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHistoryWriter(3)
		h.withDay()
		before := len(h.v.breaches) // the planted outcomes are not those of the programs
		h.sample(&shownJobs{explained: "CPU is short"}, newLeaderAge+10*time.Second)
		h.sample(&shownJobs{}, reasonLag)
		h.v.liveness.countLeaderFaults(1)
		h.sample(&shownJobs{}, faultyLag/2)
		h.v.liveness.countLeaderFaults(-1)
		h.sample(&shownJobs{reason: "CPU is short"}, 10*time.Second)
		if open := h.v.day.openJobs(); len(open) != 1 {
			t.Errorf("open jobs: %v", open)
		}
		h.endTask("b", 1, cluster.StateFailed)
		before += len(h.v.breaches) - before
		h.sample(&shownJobs{status: api.JobStatus{
			State: cluster.JobFailed, TaskCounts: api.TaskCounts{Total: 2, Succeeded: 1, Failed: 1},
		}}, 2*endLag)
		h.v.day.noteLastAct()
		h.v.day.checkEnd()
		if found := h.v.breaches[before:]; len(found) > 0 || !h.v.day.isDone() {
			t.Errorf("done: %t, breaches: %v", h.v.day.isDone(), found)
		}
		if s := h.v.day.summary(); s.Ends[cluster.JobFailed] != 1 || s.Jobs != 1 || s.Tasks != 2 ||
			s.LongestUnexplained == 0 || s.QuietSamples == 0 || s.QuietSamples == s.Samples {
			t.Errorf("the counts are %+v", s)
		}
	})
}

// TestUnexplainedInAFault has a task that waits without a reason during a fault that does not end.
func TestUnexplainedInAFault(t *testing.T) {
	for length, want := range map[time.Duration]bool{faultyLag / 2: false, 2 * faultyLag: true} {
		synctest.Test(t, func(t *testing.T) {
			h := newHistoryWriter(3)
			h.withDay()
			h.v.liveness.countLeaderFaults(1)
			h.sample(&shownJobs{}, length)
			got := false
			for _, v := range h.v.breaches {
				got = got || v.Invariant == "reason"
			}
			if got != want {
				t.Errorf("after %v a breach is reported: %t, want %t; %s", length, got, want, fmt.Sprint(h.v.breaches))
			}
		})
	}
}

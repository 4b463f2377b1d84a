package reconciler_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
)

// TestRetries checks which failures still count after each request of a user.
func TestRetries(t *testing.T) {
	began := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	job := &cluster.Job{
		Cluster: "c", Name: "j", Lifespan: cluster.Lifespan{Generation: 1},
		Steps: []cluster.Step{{Name: "s", Count: 3}},
	}
	in := reconciler.JobInput{Owner: job.Owner(), Spec: job}
	for i := range 3 { // each fails some time after the one before
		in.Tasks = append(in.Tasks, reconciler.Task{Attempt: cluster.Attempt{Outcome: &cluster.Outcome{
			Task: cluster.JobTask("c", "j", 1, "s", i), Attempt: i + 1, Owner: job.Owner(), State: cluster.StateFailed,
			Reason: cluster.ReasonExit, Started: true, Exit: &cluster.Exit{Code: 1},
			Placed: began.Add(time.Duration(i) * time.Minute), Ended: began.Add(time.Hour),
		}}})
	}
	failed := func() (indices []int) {
		for _, f := range reconciler.FailedTasks(in) {
			indices = append(indices, f.Index)
		}
		return indices
	}
	retry := func(want []int, indices ...int) {
		t.Helper()
		tasks := reconciler.FailedTasks(in)
		if len(indices) > 0 {
			tasks = nil
			for _, f := range reconciler.FailedTasks(in) {
				for _, i := range indices {
					if f.Index == i {
						tasks = append(tasks, f)
					}
				}
			}
		}
		job.Retried = reconciler.Retry(in, tasks, len(indices) == 0)
		if diff := cmp.Diff(want, failed()); diff != "" {
			t.Errorf("failed after the retry of %v (-want +got):\n%s", indices, diff)
		}
		if n := job.Retried.Attempts; n != 1+2+3 {
			t.Errorf("the run had %d attempts, want 6", n)
		}
	}
	if diff := cmp.Diff([]int{0, 1, 2}, failed()); diff != "" {
		t.Fatal(diff)
	}
	retry([]int{0, 1}, 2)
	retry(nil) // the one that is already tried again stays so, although it failed last
	retry(nil)
	if st := reconciler.StatusOfJob(in); st.Pending != 3 || st.Failed != 0 {
		t.Errorf("after the retry of all: %+v", st)
	}
}

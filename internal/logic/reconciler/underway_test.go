package reconciler_test

import (
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
)

// TestIsUnderWay checks when a job of two steps, the second of which needs the first, has begun and not ended.
func TestIsUnderWay(t *testing.T) {
	began := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	job := func(change ...func(*cluster.Job)) *cluster.Job {
		j := &cluster.Job{
			Cluster: "c", Name: "j", Lifespan: cluster.Lifespan{Generation: 2},
			Steps: []cluster.Step{{Name: "a", Count: 1}, {Name: "b", Count: 1, Needs: []string{"a"}}},
		}
		for _, c := range change {
			c(j)
		}
		return j
	}
	attempt := func(generation uint64, step string, state cluster.State) reconciler.Task {
		d := &cluster.Desired{
			Task: cluster.JobTask("c", "j", generation, step, 0), Attempt: 1, Node: "n", UUID: step,
			Owner: job().Owner(),
		}
		task := reconciler.Task{Attempt: cluster.Attempt{Desired: d}}
		if state != "" {
			task.Outcome = &cluster.Outcome{
				Task: d.Task, Attempt: 1, Node: "n", UUID: step, State: state, Reason: cluster.ReasonExit,
				Owner: job().Owner(), Placed: began, Ended: began.Add(time.Minute),
			}
		}
		return task
	}
	// retried is a job whose user had its failed tasks tried again while it had these tasks.
	retried := func(tasks ...reconciler.Task) *cluster.Job {
		j := job()
		for _, all := range []bool{false, true, false} { // a request that is repeated changes nothing
			in := reconciler.JobInput{Owner: j.Owner(), Spec: j, Tasks: tasks}
			j.Retried = reconciler.Retry(in, reconciler.FailedTasks(in), all)
		}
		return j
	}
	deleted := func(j *cluster.Job) { j.Deleted = true }
	done, failed := attempt(2, "a", cluster.StateSucceeded), attempt(2, "a", cluster.StateFailed)
	ran := attempt(2, "b", cluster.StateSucceeded)
	for name, c := range map[string]struct {
		job   *cluster.Job
		tasks []reconciler.Task
		want  bool
	}{
		"no record":            {nil, []reconciler.Task{attempt(2, "a", "")}, false},
		"nothing placed":       {job(), nil, false},
		"an earlier run":       {job(), []reconciler.Task{attempt(1, "a", "")}, false},
		"placed":               {job(), []reconciler.Task{attempt(2, "a", "")}, true},
		"between its steps":    {job(), []reconciler.Task{done}, true},
		"ended":                {job(), []reconciler.Task{done, attempt(2, "b", cluster.StateSucceeded)}, false},
		"failed":               {job(), []reconciler.Task{failed}, false},
		"deleted":              {job(deleted), []reconciler.Task{attempt(2, "a", "")}, false},
		"retried":              {retried(failed), []reconciler.Task{failed}, false},
		"retried and placed":   {retried(failed), []reconciler.Task{failed, attempt(2, "a", "")}, true},
		"retried while it ran": {retried(failed, attempt(2, "b", "")), []reconciler.Task{failed, ran}, true},
	} {
		in := reconciler.JobInput{Owner: job().Owner(), Spec: c.job, Tasks: c.tasks, Now: began.Add(2 * time.Hour)}
		if got := reconciler.IsUnderWay(in); got != c.want {
			t.Errorf("%s: the job is under way: %t, want %t", name, got, c.want)
		}
	}
}

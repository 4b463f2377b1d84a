package reconciler_test

import (
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
)

// A job is deleted once its retention time after its end has passed. Before that, the decision names the time.
func TestEndedJobsExpire(t *testing.T) {
	const keep = time.Hour
	ended := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	task := cluster.JobTask("c", "sum", 1, "all", 0)
	outcome := reconciler.Task{Attempt: cluster.Attempt{Outcome: &cluster.Outcome{
		Task: task, Attempt: 1, State: cluster.StateSucceeded, Started: true, Ended: ended,
		Owner: cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "sum"},
	}}}
	runs := reconciler.Task{Attempt: cluster.Attempt{DesiredRev: 7, Desired: &cluster.Desired{
		Task: task, Attempt: 1, UUID: "u", Node: "n", Owner: outcome.Outcome.Owner,
	}}}
	for _, tt := range []struct {
		name   string
		change func(*cluster.Job)
		tasks  []reconciler.Task
		keep   time.Duration
		after  time.Duration // since the end
		expire bool
		next   time.Duration // since the end, 0 for none
	}{
		{"just ended", nil, []reconciler.Task{outcome}, keep, time.Minute, false, keep},
		{"kept for long enough", nil, []reconciler.Task{outcome}, keep, keep, true, 0},
		{"kept forever", nil, []reconciler.Task{outcome}, 0, 100 * keep, false, 0},
		{"of a cron that was deleted", func(j *cluster.Job) {
			j.Cron = "nightly"
		}, []reconciler.Task{outcome}, keep, 2 * keep, true, 0},
		{"runs", nil, []reconciler.Task{runs}, keep, 2 * keep, false, 0},
		{"never ran", nil, nil, keep, 2 * keep, false, 0},
		{"cancelled before it ran", func(j *cluster.Job) {
			j.Cancelled, j.Updated = true, ended
		}, nil, keep, keep, true, 0},
		{"written again since", func(j *cluster.Job) {
			j.Updated = ended.Add(keep)
		}, []reconciler.Task{outcome}, keep, keep, false, 2 * keep},
		{"deleted already", func(j *cluster.Job) {
			j.Deleted = true
		}, []reconciler.Task{outcome}, keep, 2 * keep, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			job := &cluster.Job{
				Cluster: "c", Name: "sum", Lifespan: cluster.Lifespan{Generation: 1, Updated: ended.Add(-time.Hour)},
				Steps: []cluster.Step{{Name: "all", Definition: cluster.Ref{Name: "w", Version: 1}, Count: 1}},
			}
			if tt.change != nil {
				tt.change(job)
			}
			d := reconciler.Job(reconciler.JobInput{
				Owner: job.Owner(), Spec: job, SpecRev: 5, Definitions: func(cluster.Ref) *cluster.TaskDefinition {
					return nil
				},
				Tasks: tt.tasks, Keep: tt.keep, Now: ended.Add(tt.after),
			})
			if d.Expire != tt.expire {
				t.Errorf("expire: %v, want %v", d.Expire, tt.expire)
			}
			if tt.next != 0 && !d.NextDecision.Equal(ended.Add(tt.next)) {
				t.Errorf("the next decision is at %s, want %s", d.NextDecision, ended.Add(tt.next))
			}
		})
	}
}

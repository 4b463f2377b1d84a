package reconciler_test

import (
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
)

// After the wall clock was set, a deadline and the retention of a job pass only after ClockHold, or after the whole
// time if that is shorter. The decision comes again then.
func TestNothingPassesWhileTheClockMayBeWrong(t *testing.T) {
	set := time.Unix(1_000_000, 0).UTC()
	for name, test := range map[string]struct {
		length, held time.Duration
	}{
		"long":  {2 * time.Hour, reconciler.ClockHold},
		"short": {time.Minute, time.Minute},
	} {
		for _, after := range []time.Duration{0, test.held - 1, test.held} {
			job := &cluster.Job{
				Name: "j", Deadline: cluster.Duration(test.length), Submitted: set.Add(-3 * time.Hour),
				Steps: []cluster.Step{{Name: "s", Definition: cluster.Ref{Name: "d", Version: 1}, Count: 1}},
			}
			in := reconciler.JobInput{Owner: job.Owner(), Spec: job, ClockSet: set, Now: set.Add(after)}
			d, passed := reconciler.Job(in), after >= test.held
			if d.Cancel != passed || !passed && !d.NextDecision.Equal(set.Add(test.held)) {
				t.Errorf("%s, %v after the clock was set: cancel %v, next decision %v", name, after, d.Cancel,
					d.NextDecision)
			}
			ended := *job
			ended.Cancelled, ended.Updated = true, set.Add(-3*time.Hour)
			in.Spec, in.Keep = &ended, test.length
			d = reconciler.Job(in)
			if d.Expire != passed || !passed && !d.NextDecision.Equal(set.Add(test.held)) {
				t.Errorf("%s, %v after the clock was set: expire %v, next decision %v", name, after, d.Expire,
					d.NextDecision)
			}
		}
	}
}

// The deadline of a drain does not pass within ClockHold after the clock was set, but a forced drain does.
func TestDrainWhileTheClockMayBeWrong(t *testing.T) {
	set := time.Unix(1_000_000, 0).UTC()
	job := &cluster.Job{
		Cluster: "c", Name: "j", Lifespan: cluster.Lifespan{Generation: 1},
		Steps: []cluster.Step{{Name: "s", Definition: cluster.Ref{Name: "d", Version: 1}, Count: 1}},
	}
	task := cluster.JobTask("c", "j", 1, "s", 0)
	desired := cluster.Desired{
		Task: task, Attempt: 1, UUID: "u", Node: "n1", Owner: job.Owner(), Definition: job.Steps[0].Definition,
	}
	for _, test := range []struct {
		after time.Duration
		force bool
		stops int
	}{{0, false, 0}, {reconciler.ClockHold - 1, false, 0}, {reconciler.ClockHold, false, 1}, {0, true, 1}} {
		d := reconciler.Job(reconciler.JobInput{
			Owner: job.Owner(), Spec: job, ClockSet: set, Now: set.Add(test.after),
			Definitions: func(cluster.Ref) *cluster.TaskDefinition { return &cluster.TaskDefinition{} },
			Tasks: []reconciler.Task{{
				Attempt: cluster.Attempt{
					Desired: &desired, DesiredRev: 1, Observed: &cluster.Observed{
						Task: task, Attempt: 1, UUID: "u", Node: "n1", State: cluster.StateRunning, Started: set,
					},
				},
				Reported: true,
				Drain: &cluster.Drain{
					Since: set.Add(-3 * time.Hour), Deadline: set.Add(-time.Hour), Force: test.force,
				},
			}},
		})
		if len(d.Stops) != test.stops {
			t.Errorf("%v after the clock was set, forced %v: %+v, want %d stops", test.after, test.force, d.Stops,
				test.stops)
		}
	}
}

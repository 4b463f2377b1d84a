package reconciler_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
)

// drawSteps returns up to five steps in any order. Each needs any of those that were drawn before it.
func drawSteps(t *rapid.T, template cluster.Step) []cluster.Step {
	var steps []cluster.Step
	for i := range rapid.IntRange(1, 5).Draw(t, "steps") {
		s := template
		s.Name, s.Count = string(rune('a'+i)), rapid.IntRange(1, 2).Draw(t, "count")
		s.Parallelism = rapid.IntRange(0, 2).Draw(t, "parallelism")
		for k := range steps {
			if rapid.IntRange(0, 2).Draw(t, "needs") == 0 {
				s.Needs = append(s.Needs, steps[k].Name)
			}
		}
		if len(s.Needs) > 0 {
			s.Requires = rapid.SampledFrom(cluster.Requirement("").Values()).Draw(t, "requires")
		}
		steps = append(steps, s)
	}
	return rapid.Permutation(steps).Draw(t, "order")
}

// endedSteps returns the state that each step of an ended job must have by the outcomes of the tasks, computed in
// rounds until nothing changes.
func (w *world) endedSteps() map[string]cluster.StepState {
	succeeded, charged := map[string]int{}, map[cluster.TaskID]int{}
	failed := map[string]bool{}
	for _, r := range w.records {
		parts, _ := r.id.Parts()
		switch o := r.Outcome; {
		case o.State == cluster.StateSucceeded:
			succeeded[parts.Step]++
			charged[r.id] = -1000
		case !o.Free:
			charged[r.id]++
		}
		if step := w.job.Step(parts.Step); charged[r.id] > step.Retries {
			failed[parts.Step] = true
		}
	}
	states := map[string]cluster.StepState{}
	for range w.job.Steps {
		for i := range w.job.Steps {
			step := &w.job.Steps[i]
			missed := slices.ContainsFunc(step.Needs, func(name string) bool {
				return step.Requires == cluster.RequireCompleted && states[name] != "" &&
					states[name] != cluster.StepSucceeded
			})
			switch {
			case succeeded[step.Name] == step.Count:
				states[step.Name] = cluster.StepSucceeded
			case failed[step.Name]:
				states[step.Name] = cluster.StepFailed
			case w.job.Cancelled:
				states[step.Name] = cluster.StepCancelled
			case missed:
				states[step.Name] = cluster.StepSkipped
			}
		}
	}
	return states
}

// checkNeeds returns an error if a task that may be placed belongs to a step whose needs are not met.
func (w *world) checkNeeds(d reconciler.Decision) error {
	if w.job == nil || len(d.Pending) == 0 {
		return nil
	}
	if err := w.checkParallelism(d); err != nil {
		return err
	}
	states := map[string]cluster.StepState{}
	for _, s := range reconciler.StatusOfJob(reconciler.JobInput{Spec: w.job, Tasks: w.tasks()}).Steps {
		states[s.Name] = s.State
	}
	for i := range d.Pending {
		p := &d.Pending[i]
		parts, _ := p.Task.Parts()
		step := w.job.Step(parts.Step)
		met := !slices.ContainsFunc(step.Needs, func(name string) bool {
			return !states[name].Ended() || step.Requires == cluster.RequireCompleted &&
				states[name] != cluster.StepSucceeded
		})
		if held := p.Hold.Reason == cluster.ReasonNeeds; held == met {
			return fmt.Errorf("%s is held: %t, and its needs are met: %t (%v)", p.Task, held, met, states)
		}
	}
	return nil
}

// checkParallelism returns an error if more tasks of a step run, or may be placed, than the step allows at a time.
func (w *world) checkParallelism(d reconciler.Decision) error {
	tasks := map[string]int{}
	for _, r := range w.records {
		if parts, _ := r.id.Parts(); r.Outcome == nil && (r.Desired != nil || r.Observed != nil) {
			tasks[parts.Step]++
		}
	}
	for i := range d.Pending {
		if parts, _ := d.Pending[i].Task.Parts(); d.Pending[i].Hold == (cluster.Hold{}) {
			tasks[parts.Step]++
		}
	}
	for i := range w.job.Steps {
		if s := &w.job.Steps[i]; s.Parallelism > 0 && tasks[s.Name] > s.Parallelism {
			return fmt.Errorf("%d tasks of step %s run or may begin, and %d may at a time", tasks[s.Name], s.Name,
				s.Parallelism)
		}
	}
	return nil
}

// TestStepsDoNotDependOnTheOrder computes the state of steps from the same tasks in any order.
func TestStepsDoNotDependOnTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.fails = func(id cluster.TaskID, n int) bool { return (len(id)+int(id[len(id)-1])+n)%3 == 0 }
		w.job = &cluster.Job{
			Name: "work", Lifespan: cluster.Lifespan{Generation: 1},
			Steps: drawSteps(t, cluster.Step{Definition: w.define("w@1", nil), Retries: 1}),
		}
		w.job.SetDefaults()
		w.owner = w.job.Owner()
		for range rapid.IntRange(0, 20).Draw(t, "rounds") {
			d, err := w.round()
			if err == nil {
				err = w.checkNeeds(w.decide(w.tasks()))
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, describe(d))
			}
		}
		tasks := w.tasks()
		input := reconciler.JobInput{Spec: w.job, Tasks: tasks}
		status, decision := reconciler.StatusOfJob(input), w.decide(tasks)
		shuffled := rapid.Permutation(tasks).Draw(t, "tasks")
		input.Tasks = shuffled
		if diff := cmp.Diff(status, reconciler.StatusOfJob(input)); diff != "" {
			t.Errorf("status in another order:\n%s", diff)
		}
		if diff := cmp.Diff(describe(decision), describe(w.decide(shuffled))); diff != "" {
			t.Errorf("decision in another order:\n%s", diff)
		}
	})
}

package reconciler

import (
	"cmp"
	"fmt"

	"github.com/berthd/berth/internal/cluster"
)

// Obstacle says why no task of a step begins, or no further one.
type Obstacle struct {
	// State is that of the step: waiting, skipped, failed or cancelled.
	State cluster.StepState
	// Message is what the step waits for, or why it does not run, as a clause: "it needs step test, which …".
	Message string
	// Hold is the sentence with which the step's tasks are held; empty if they are not requested.
	Hold string
	// Retries says that the step may run once the failed tasks are tried again.
	Retries bool
}

// StepObstacles says what keeps the steps of a job from running. It is for one goroutine.
type StepObstacles struct {
	spec     *cluster.Job
	steps    []jobStep
	position map[string]int
}

// StepObstaclesOf returns the obstacles of a job's steps. It reads Spec, Tasks and Packed of the input.
func StepObstaclesOf(in JobInput) *StepObstacles {
	o := &StepObstacles{spec: in.Spec, position: map[string]int{}}
	if in.Spec == nil {
		return o
	}
	o.steps, _ = stepsOf(&in, slots(in.Tasks))
	resolveSteps(in.Spec, o.steps)
	for i := range o.steps {
		o.position[o.steps[i].Name] = i
	}
	return o
}

// Of returns what keeps the tasks of a step from beginning; ok is false if nothing does or there is no such step.
func (o *StepObstacles) Of(name string) (found Obstacle, ok bool) {
	at, known := o.position[name]
	if !known {
		return found, false
	}
	s := &o.steps[at]
	found.State = s.state
	switch {
	case s.failed != nil && !s.mayBegin():
		found.State, found.Retries = cluster.StepFailed, !o.spec.Cancelled && !o.spec.Deleted
		found.Message = fmt.Sprintf("step %s failed: %s", name, s.failureText())
	case s.state == cluster.StepSkipped, s.state == cluster.StepWaiting:
		root := o.root(s)
		found.Message = "it needs step " + s.blocker + ", which "
		if root.Name != s.blocker {
			found.Message += fmt.Sprintf("%s for step %s; that step ", o.verb(s.blocker), root.Name)
		}
		found.Message += root.endText(o.spec)
		if s.state == cluster.StepWaiting {
			found.Hold = s.waitText()
		}
		found.Retries = s.state == cluster.StepSkipped && root.failed != nil
	case s.state == cluster.StepCancelled:
		found.Message = cancelText(o.spec)
		if o.spec.Deleted {
			found.Message = "the job was deleted"
		}
	default:
		return found, false
	}
	return found, true
}

// root returns the step at the end of the chain of needs: the one that failed, or that has not ended and may run.
func (o *StepObstacles) root(s *jobStep) *jobStep {
	for range o.steps { // a chain has no circle, which Validate refuses
		at, known := o.position[s.blocker]
		if !known {
			break
		}
		s = &o.steps[at]
		if s.state != cluster.StepSkipped && s.state != cluster.StepWaiting {
			break
		}
	}
	return s
}

// verb says that a step waits, or that it was skipped, before "for step x".
func (o *StepObstacles) verb(name string) string {
	if o.steps[o.position[name]].state == cluster.StepSkipped {
		return "was skipped"
	}
	return "waits"
}

// endText says why the step did not succeed, or how many of its tasks did so far.
func (s *jobStep) endText(spec *cluster.Job) string {
	switch {
	case s.failed != nil && s.state.Ended():
		return "failed: " + s.failureText()
	case s.state.Ended():
		return "is " + string(s.state)
	}
	st := s.status(spec)
	text := fmt.Sprintf("is %s: %d/%d succeeded", cmp.Or(s.state, cluster.StepPending), st.Succeeded, st.Total)
	if st.Running > 0 {
		text += fmt.Sprintf(", %d running", st.Running)
	}
	if st.Failed > 0 {
		text += fmt.Sprintf(", %d failed", st.Failed)
	}
	return text
}

package reconciler

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/logic/watcher"
)

// JobStatus counts the tasks of a job.
type JobStatus struct {
	TaskCounts

	State   cluster.JobState
	Message string
	// Unmet says which needs the first task of the run waits for; empty if it waits for none.
	Unmet string
	// Finished is when the last attempt ended, once the job is done.
	Finished time.Time
	// Steps are in the order of the spec.
	Steps []StepStatus
}

// TaskCounts counts tasks of a job. A placed task without an outcome counts as running. A task that will not begin any
// more counts as cancelled.
type TaskCounts struct {
	Total, Pending, Running, Succeeded, Failed, Cancelled int
}

// StepStatus counts the tasks of a step.
type StepStatus struct {
	TaskCounts

	Name  string
	State cluster.StepState
	// Message says what the step waits for, or why it failed or was skipped.
	Message string
}

// StatusOfJob returns the state of a job. It reads Spec, Unmet, Tasks and Packed of the input.
func StatusOfJob(in JobInput) JobStatus {
	if in.Spec == nil {
		return JobStatus{State: cluster.JobDeleting}
	}
	steps, _ := stepsOf(&in, slots(in.Tasks))
	resolveSteps(in.Spec, steps)
	return jobStatusOf(&in, steps)
}

// FailedTask is a task of a job that failed and is not tried again.
type FailedTask struct {
	ID    cluster.TaskID
	Step  string
	Index int
	// Placed is when the leader placed its last attempt; when it gave up, if there was no place.
	Placed time.Time
}

// FailedTasks returns the tasks of the job's present run that failed and are not tried again, by step and index. It
// reads Spec, Tasks and Packed of the input.
func FailedTasks(in JobInput) (failed []FailedTask) {
	steps, _ := stepsOf(&in, slots(in.Tasks))
	for i := range steps {
		for _, s := range steps[i].tasks {
			if !s.live() && s.exhausted(steps[i].Step) {
				failed = append(failed, FailedTask{s.id, s.parts.Step, s.parts.Index, placedAt(s.newest().Outcome)})
			}
		}
	}
	return failed
}

// jobStatusOf returns the state of a job with these resolved steps.
func jobStatusOf(in *JobInput, steps []jobStep) JobStatus {
	spec, hold := in.Spec, in.hold().Message
	st := JobStatus{Steps: make([]StepStatus, len(steps))}
	begun, ended := false, true
	var last time.Time
	for i := range steps {
		step := &steps[i]
		st.Steps[i] = step.status(spec)
		st.TaskCounts.add(st.Steps[i].TaskCounts)
		begun = begun || step.state != cluster.StepWaiting && step.state != cluster.StepPending
		ended = ended && step.state.Ended()
		last = later(last, step.endedAt())
	}
	failed := firstFailed(steps)
	st.State = st.state(spec, begun, ended, failed != nil)
	if st.State.Ended() {
		st.Finished = last
	}
	st.Message = st.message(in, failed)
	if failed == nil && (st.State == cluster.JobRunning || st.State == cluster.JobPending) && !spec.Cancelled {
		if hold != "" {
			st.Message += "; " + hold
		}
		if in.awaitsNeeds() {
			st.Unmet = in.Unmet
		}
		st.Message += firstObstacle(steps)
	}
	return st
}

func (c *TaskCounts) add(more TaskCounts) {
	c.Total += more.Total
	c.Pending += more.Pending
	c.Running += more.Running
	c.Succeeded += more.Succeeded
	c.Failed += more.Failed
	c.Cancelled += more.Cancelled
}

// status counts the tasks of a resolved step.
func (s *jobStep) status(spec *cluster.Job) StepStatus {
	st := StepStatus{Name: s.Name, State: s.state, TaskCounts: TaskCounts{Total: s.Count}}
	over := spec.Cancelled || spec.Deleted || s.failed != nil || s.state == cluster.StepSkipped
	for _, t := range s.tasks {
		switch {
		case t.live():
			st.Running++
		case t.succeeded():
			st.Succeeded++
		case t.exhausted(s.Step):
			st.Failed++
		case over && (!t.forced || s.state.Ended()):
			st.Cancelled++
		default:
			st.Pending++
		}
	}
	packed := s.packed.count()
	st.Succeeded += packed
	if untouched := s.Count - len(s.tasks) - packed; over {
		st.Cancelled += untouched
	} else {
		st.Pending += untouched
	}
	switch {
	case s.failed != nil:
		st.Message = s.failureText()
	case s.state == cluster.StepWaiting, s.state == cluster.StepSkipped:
		st.Message = s.waitText()
	}
	return st
}

// firstObstacle returns, as the end of a sentence, the first trouble among the tasks of steps that may run. Without
// trouble it returns the message of the first live attempt that does not run yet. It is empty if all tasks make
// progress.
func firstObstacle(steps []jobStep) string {
	note := ""
	for i := range steps {
		if steps[i].state == cluster.StepWaiting || steps[i].state.Ended() {
			continue
		}
		if text := steps[i].unreadableText(); text != "" {
			return "; " + text
		}
		for _, s := range steps[i].tasks {
			if s.succeeded() {
				continue
			}
			if trouble := s.trouble(); trouble != "" {
				return "; " + trouble
			}
			if t := s.newest(); note == "" && t != nil && t.live() {
				if v := lifecycle.Shown(t.Attempt); v.Message != "" && v.State != cluster.StateRunning {
					note = fmt.Sprintf("; %s: %s", s.id, v.Message)
				}
			}
		}
	}
	return note
}

func (s *JobStatus) state(spec *cluster.Job, begun, ended, failed bool) cluster.JobState {
	switch {
	case spec.Deleted:
		return cluster.JobDeleting
	case s.Succeeded == s.Total:
		return cluster.JobSucceeded
	case s.Running > 0:
		return cluster.JobRunning
	case spec.Cancelled:
		return cluster.JobCancelled
	case ended && failed:
		return cluster.JobFailed
	case begun:
		return cluster.JobRunning
	}
	return cluster.JobPending
}

// message says why the job is not done. Failed is the first failed step, or nil.
func (s *JobStatus) message(in *JobInput, failed *jobStep) string {
	spec := in.Spec
	switch {
	case s.State == cluster.JobSucceeded:
		return ""
	case s.State == cluster.JobDeleting:
		return endingText(in.leftOver())
	case failed != nil:
		text := failed.failureText()
		if left := s.Running + s.Pending; left > 0 {
			text += fmt.Sprintf("; waiting for %s to finish", countedTasks(left))
		}
		return text
	case spec.Cancelled && s.Running > 0:
		_, silent := in.leftOver()
		return fmt.Sprintf("%s; %s", cancelText(spec), endingText(s.Running, silent))
	case spec.Cancelled:
		return cancelText(spec)
	}
	return fmt.Sprintf("%d/%d succeeded", s.Succeeded, s.Total)
}

// leftOver returns how many tasks of all runs are live, and the first silent node with a record of one, or nothing.
func (in *JobInput) leftOver() (live int, silent string) {
	counted := map[cluster.TaskID]bool{}
	for i := range in.Tasks {
		t := &in.Tasks[i]
		if id := t.id(); t.live() && !counted[id] {
			counted[id] = true
			live++
		}
		if t.hasRecords() && t.Absence == watcher.Silent && (silent == "" || t.node() < silent) {
			silent = t.node()
		}
	}
	return live, silent
}

// endingText says what an owner waits for that is to have no tasks any more.
func endingText(live int, silent string) string {
	text := fmt.Sprintf("waiting for %s to end", countedTasks(live))
	if live == 0 {
		text = "removing what is left of its tasks"
	}
	if silent != "" {
		text += fmt.Sprintf("; node %s is silent: bring it back, or `%s %s`", silent, cluster.ForgetCommand, silent)
	}
	return text
}

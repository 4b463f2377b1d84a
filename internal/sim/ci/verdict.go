package ci

import (
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Attempts returns the outcomes of the attempts of a task in their order, and whether another attempt has none yet.
type Attempts func(task cluster.TaskID) (outcomes []*cluster.Outcome, live bool)

// Verdict is what a job must be, by its spec and the attempts of its tasks.
type Verdict struct {
	State cluster.JobState
	Counts
	// Waiting are the tasks that are to run and have no attempt without an outcome, by step and index.
	Waiting []cluster.TaskID
}

// Counts counts the tasks of a job. A task that does not begin any more counts as cancelled.
type Counts struct{ Total, Waiting, Running, Succeeded, Failed, Cancelled int }

// taskState is the state of a task.
type taskState int

const (
	unfinished taskState = iota // it has no attempt, or may have another one
	running
	succeeded
	failed
)

// stepFacts is a step with the states of its tasks.
type stepFacts struct {
	*cluster.Step
	tasks []taskState
	begun bool
	state cluster.StepState
}

func (s *stepFacts) count(state taskState) int {
	n := 0
	for _, t := range s.tasks {
		if t == state {
			n++
		}
	}
	return n
}

// Judge computes the verdict of a job.
func Judge(job *cluster.Job, attempts Attempts) Verdict {
	steps := make([]stepFacts, len(job.Steps))
	for i := range job.Steps {
		step := &job.Steps[i]
		steps[i] = stepFacts{Step: step, tasks: make([]taskState, step.Count)}
		for k := range step.Count {
			outcomes, live := attempts(cluster.JobTask(job.Cluster, job.Name, job.Generation, step.Name, k))
			steps[i].begun = steps[i].begun || live || len(outcomes) > 0
			steps[i].tasks[k] = stateOf(step, outcomes, live, job.Retried.Of(step.Name, k))
		}
	}
	over := job.Cancelled || job.Deleted
	for range steps { // each round settles at least one step that waited for others
		for i := range steps {
			steps[i].state = stateOfStep(&steps[i], steps, over)
		}
	}
	return judge(job, steps, over)
}

// judge sums up the steps.
func judge(job *cluster.Job, steps []stepFacts, over bool) Verdict {
	var v Verdict
	begun, ended, bad := false, true, false
	for i := range steps {
		s := &steps[i]
		stuck := over || s.count(failed) > 0 || s.state == cluster.StepSkipped
		for k, state := range s.tasks {
			v.Total++
			switch {
			case state == running:
				v.Running++
			case state == succeeded:
				v.Succeeded++
			case state == failed:
				v.Failed++
			case stuck:
				v.Cancelled++
			default:
				v.Counts.Waiting++
				v.Waiting = append(v.Waiting, cluster.JobTask(job.Cluster, job.Name, job.Generation, s.Name, k))
			}
		}
		begun = begun || s.state != cluster.StepWaiting && s.state != cluster.StepPending
		ended = ended && isEnded(s.state)
		bad = bad || s.count(failed) > 0
	}
	switch {
	case job.Deleted:
		v.State = cluster.JobDeleting
	case v.Succeeded == v.Total:
		v.State = cluster.JobSucceeded
	case v.Running > 0:
		v.State = cluster.JobRunning
	case job.Cancelled:
		v.State = cluster.JobCancelled
	case ended && bad:
		v.State = cluster.JobFailed
	case begun:
		v.State = cluster.JobRunning
	default:
		v.State = cluster.JobPending
	}
	return v
}

// Ended reports whether nothing of the job runs or will run.
func (v *Verdict) Ended() bool { return v.Running == 0 && v.Counts.Waiting == 0 }

func isEnded(s cluster.StepState) bool {
	return s == cluster.StepSucceeded || s == cluster.StepFailed || s == cluster.StepSkipped ||
		s == cluster.StepCancelled
}

// stateOfStep returns the state of a step by its tasks and the present states of the steps that it needs.
func stateOfStep(s *stepFacts, all []stepFacts, over bool) cluster.StepState {
	switch {
	case s.count(succeeded) == len(s.tasks):
		return cluster.StepSucceeded
	case s.count(running) > 0:
		return cluster.StepRunning
	case s.count(failed) > 0:
		return cluster.StepFailed
	case over:
		return cluster.StepCancelled
	}
	waits := false
	for _, name := range s.Needs {
		for i := range all {
			switch needed := all[i].state; {
			case all[i].Name != name:
			case !isEnded(needed):
				waits = true
			case needed != cluster.StepSucceeded && s.Requires != cluster.RequireResolved:
				return cluster.StepSkipped
			}
		}
	}
	switch {
	case waits:
		return cluster.StepWaiting
	case s.begun:
		return cluster.StepRunning
	}
	return cluster.StepPending
}

// stateOf returns the state of a task. Failures of attempts that were placed until retried do not count.
func stateOf(step *cluster.Step, outcomes []*cluster.Outcome, live bool, retried time.Time) taskState {
	charged := 0
	for _, o := range outcomes {
		if o.State == cluster.StateSucceeded {
			return succeeded
		}
		if !IsSettled(o, retried) && IsCharged(step, o) {
			charged++
		}
	}
	switch {
	case live:
		return running
	case charged > step.Retries, len(outcomes) > 0 && isFinal(step, outcomes[len(outcomes)-1], retried):
		return failed
	}
	return unfinished
}

// HasFailed reports whether a task without a live attempt has failed for good. Failures of attempts that were placed
// until retried do not count.
func HasFailed(step *cluster.Step, outcomes []*cluster.Outcome, retried time.Time) bool {
	return stateOf(step, outcomes, false, retried) == failed
}

// IsSettled reports whether the end of an attempt no longer counts, because its user had the task tried again. Retried
// is the time of the last placement that does not count; zero means that there was no such request.
func IsSettled(o *cluster.Outcome, retried time.Time) bool {
	return !retried.IsZero() && !o.Placed.After(retried)
}

// IsCharged reports whether an attempt that did not succeed uses a retry of its task. Attempts that ended before their
// program began, or that Berth or a user ended, are free. So are interrupted attempts of idempotent tasks. (A task that
// is interrupted more than ten times is charged. The workload has none.)
func IsCharged(step *cluster.Step, o *cluster.Outcome) bool {
	switch o.State {
	case cluster.StateSucceeded, cluster.StateCancelled:
		return false
	case cluster.StateLost, cluster.StateRejected:
		return o.Started && !step.Idempotent
	}
	interrupted := o.Started && (o.Reason == cluster.ReasonBootChanged || o.Reason == cluster.ReasonUnknownExit)
	return !interrupted || !step.Idempotent
}

// isFinal reports whether the last attempt of a task ended with an exit code after which the task is not tried again.
func isFinal(step *cluster.Step, o *cluster.Outcome, retried time.Time) bool {
	return !IsSettled(o, retried) && o.State == cluster.StateFailed && o.Reason == cluster.ReasonExit &&
		o.Exit != nil && o.Exit.Signal == 0 && IsFinalCode(step, o.Exit.Code)
}

// IsFinalCode reports whether a task of the step is not tried again after its program has ended with the code.
func IsFinalCode(step *cluster.Step, code int) bool {
	codes := step.ExitCodes
	switch {
	case codes == nil:
		return false
	case len(codes.Intermittent) > 0:
		return !slices.Contains(codes.Intermittent, code)
	}
	return slices.Contains(codes.Final, code)
}

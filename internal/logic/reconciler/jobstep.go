package reconciler

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// jobStep is a step of a job with its tasks. Its state follows from the tasks of the job's steps.
type jobStep struct {
	*cluster.Step
	// tasks are the tasks that have attempts, or that the user had tried again by themselves, ordered by index. The
	// step may have many more: those that are packed, and those that have not begun.
	tasks  []*slot
	packed packedTasks
	state  cluster.StepState
	// failed is the first task that failed and has no retries left, or nil.
	failed *slot
	// retrying says that a task begins again although the step has failed: the user had it tried again by itself.
	retrying bool
	// blocker names a needed step: the first one that has not ended (waiting), or the one that did not succeed
	// (skipped).
	blocker string
	// ready is when the last of the needed steps ended; zero without needs.
	ready time.Time
}

// stepsOf separates the tasks of the job's spec, by step, from tasks that the spec does not contain. A task that is
// packed has succeeded; a record of it is a stray one.
func stepsOf(in *JobInput, all []*slot) (steps []jobStep, strays []*slot) {
	spec := in.Spec
	if spec == nil {
		return nil, all
	}
	steps = make([]jobStep, len(spec.Steps))
	position := make(map[string]int, len(steps))
	for i := range steps {
		steps[i].Step = &spec.Steps[i]
		position[steps[i].Name] = i
	}
	for _, one := range in.Packed {
		if in.isPresent(one.Tasks) {
			step := &steps[position[one.Tasks.Step]]
			step.packed = append(step.packed, one)
		}
	}
	for i := range steps {
		slices.SortFunc(steps[i].packed, func(a, b Packed) int { return cmp.Compare(a.Tasks.Part, b.Tasks.Part) })
	}
	for _, s := range withRetried(spec, all) {
		at, known := position[s.parts.Step]
		if !known || s.parts.Index >= steps[at].Count || !isOfRun(spec, &s.parts) ||
			steps[at].packed.has(s.parts.Index) {
			if len(s.attempts) > 0 {
				strays = append(strays, s)
			}
			continue
		}
		step := &steps[at]
		s.retriedAt, s.idempotent = spec.Retried.Of(step.Name, s.parts.Index), step.Idempotent
		_, s.forced = spec.Retried.Tasks[cluster.RetriedTask(step.Name, s.parts.Index)]
		step.tasks = append(step.tasks, s)
	}
	for i := range steps {
		slices.SortFunc(steps[i].tasks, compareSlots)
	}
	return steps, strays
}

// isOfRun reports whether a task is of the job's present run.
func isOfRun(spec *cluster.Job, parts *cluster.TaskParts) bool {
	return parts.Cluster == spec.Cluster && parts.Owner == spec.Name && parts.Generation == spec.Generation
}

// withRetried adds the tasks that the user had tried again by themselves and that have no attempts.
func withRetried(spec *cluster.Job, all []*slot) []*slot {
	if len(spec.Retried.Tasks) == 0 {
		return all
	}
	known := make(map[cluster.TaskID]bool, len(all))
	for _, s := range all {
		known[s.id] = true
	}
	all = slices.Clone(all)
	for key := range spec.Retried.Tasks { // order-free: sorted later
		step, number, _ := strings.Cut(key, ".")
		index, err := strconv.Atoi(number)
		if id := cluster.JobTask(spec.Cluster, spec.Name, spec.Generation, step, index); err == nil && !known[id] {
			all = append(all, newSlot(id))
		}
	}
	return all
}

// resolveSteps sets the state of each step. The states depend on the spec and the tasks alone, so the order of events
// does not matter.
func resolveSteps(spec *cluster.Job, steps []jobStep) {
	if spec == nil {
		return
	}
	r := stepResolver{
		spec: spec, steps: steps, position: make(map[string]int, len(steps)), done: make([]bool, len(steps)),
	}
	for i := range steps {
		r.position[steps[i].Name] = i
	}
	for i := range steps {
		r.resolve(i)
	}
}

// stepResolver resolves each step after the steps that it needs.
type stepResolver struct {
	spec     *cluster.Job
	steps    []jobStep
	position map[string]int
	done     []bool
}

func (r *stepResolver) resolve(i int) {
	if r.done[i] {
		return
	}
	r.done[i] = true // also ends a circle, which Validate refuses
	s := &r.steps[i]
	succeeded := s.packed.count()
	live, begun := 0, len(s.packed) > 0
	s.failed, s.retrying = nil, false
	for _, t := range s.tasks {
		begun = begun || len(t.attempts) > 0
		switch {
		case t.live():
			live++
		case t.succeeded():
			succeeded++
		case t.exhausted(s.Step):
			if s.failed == nil {
				s.failed = t
			}
		case t.forced:
			s.retrying = true
		}
	}
	needs := r.resolveNeeds(s)
	switch {
	case succeeded == s.Count:
		s.state = cluster.StepSucceeded
	case live > 0:
		s.state = cluster.StepRunning
	case s.failed != nil && (!s.retrying || r.spec.Cancelled || r.spec.Deleted):
		s.state = cluster.StepFailed
	case r.spec.Cancelled || r.spec.Deleted:
		s.state = cluster.StepCancelled
	case needs != "":
		s.state = needs
	case begun:
		s.state = cluster.StepRunning
	default:
		s.state = cluster.StepPending
	}
}

// resolveNeeds returns the state that the needed steps impose, waiting or skipped, or "" if the step may begin.
func (r *stepResolver) resolveNeeds(s *jobStep) cluster.StepState {
	s.blocker, s.ready = "", time.Time{}
	skipped := ""
	for _, name := range s.Needs {
		k, known := r.position[name]
		if !known {
			continue // Validate refuses it
		}
		r.resolve(k)
		needed := &r.steps[k]
		switch {
		case !needed.state.Ended():
			if s.blocker == "" {
				s.blocker = name
			}
		case needed.state != cluster.StepSucceeded && s.Requires != cluster.RequireResolved && skipped == "":
			skipped = name
		}
		s.ready = later(s.ready, needed.endedAt())
	}
	switch {
	case skipped != "":
		s.blocker = skipped
		return cluster.StepSkipped
	case s.blocker != "":
		return cluster.StepWaiting
	}
	return ""
}

// endedAt returns when the last attempt of the step's tasks ended. A step that was skipped ended with the steps that it
// needs.
func (s *jobStep) endedAt() time.Time {
	last := later(s.ready, s.packed.lastEnded())
	for _, t := range s.tasks {
		if n := t.newest(); n != nil && n.Outcome != nil {
			last = later(last, n.Outcome.Ended)
		}
	}
	return last
}

// mayBegin reports whether tasks of the step may begin, as far as the step and its needs decide that.
func (s *jobStep) mayBegin() bool {
	return (s.failed == nil || s.retrying) && (s.state == cluster.StepPending || s.state == cluster.StepRunning) &&
		s.blocker == ""
}

// mayRequest reports whether the step's tasks are requested: it may begin, or waits for others.
func (s *jobStep) mayRequest() bool {
	return s.mayBegin() || s.failed == nil && s.state == cluster.StepWaiting
}

// taskRun is a task that is to be placed, or several with consecutive indices that have had no attempt.
type taskRun struct {
	first *slot
	count int
}

// unplaced returns the tasks of the step that are to be placed, ordered by index. Each task is a run of its own if
// single is true.
func (s *jobStep) unplaced(job *cluster.Job, single bool) (runs []taskRun) {
	next := 0 // the first index that is not in a run
	untouched := func(limit int) {
		for {
			var end int
			if next, end = s.packed.nextFree(next, limit); next == limit {
				return
			}
			n := end - next
			if single {
				n = 1
			}
			id := cluster.JobTask(job.Cluster, job.Name, job.Generation, s.Name, next)
			first := newSlot(id)
			first.retriedAt, first.idempotent = job.Retried.Of(s.Name, next), s.Idempotent
			runs, next = append(runs, taskRun{first, n}), next+n
		}
	}
	for _, t := range s.tasks {
		untouched(t.parts.Index)
		next++
		if !t.live() && !t.succeeded() {
			runs = append(runs, taskRun{t, 1})
		}
	}
	untouched(s.Count)
	return runs
}

// requested returns the tasks of the step that are to be placed. Of a step that has failed, these are the tasks that
// the user had tried again by themselves.
func (s *jobStep) requested(job *cluster.Job, single bool) []taskRun {
	waiting := s.unplaced(job, single)
	if s.failed == nil {
		return waiting
	}
	return slices.DeleteFunc(waiting, func(r taskRun) bool { return !r.first.forced || r.first.exhausted(s.Step) })
}

// hold returns why the tasks may not be placed yet, or the zero value.
func (s *jobStep) hold() cluster.Hold {
	if s.state != cluster.StepWaiting {
		return cluster.Hold{}
	}
	return cluster.Hold{Reason: cluster.ReasonNeeds, Message: s.waitText()}
}

// holdBeyondParallelism sets a hold on those requests of the step's tasks for which other tasks have to end first.
func (s *jobStep) holdBeyondParallelism(requests []cluster.Pending) []cluster.Pending {
	if s.Parallelism == 0 {
		return requests
	}
	free := s.Parallelism
	for _, t := range s.tasks {
		if t.live() {
			free--
		}
	}
	for i := 0; i < len(requests); i++ { // it may grow
		r := &requests[i]
		if free > 0 && r.Tasks() > free {
			requests = slices.Insert(requests, i+1, r.Skip(free))
			r = &requests[i]
			r.Further = free - 1
		}
		if free -= r.Tasks(); free < 0 && r.Hold == (cluster.Hold{}) {
			r.Hold = cluster.Hold{
				Reason:  cluster.ReasonParallelism,
				Message: fmt.Sprintf("at most %s of its step run at a time (parallelism)", countedTasks(s.Parallelism)),
			}
		}
	}
	return requests
}

// waitText says what a waiting or skipped step waits for, or misses.
func (s *jobStep) waitText() string {
	switch {
	case s.state == cluster.StepSkipped:
		return fmt.Sprintf("step %s did not succeed", s.blocker)
	case s.Requires == cluster.RequireResolved:
		return fmt.Sprintf("waiting for step %s to end", s.blocker)
	}
	return fmt.Sprintf("waiting for step %s to succeed", s.blocker)
}

// failureText says why the step failed.
func (s *jobStep) failureText() string {
	if out := s.failed.gangFailure(); out != nil {
		return out.Message
	}
	if out := s.failed.finalExit(s.ExitCodes); out != nil {
		return fmt.Sprintf("%s: %s, which is not tried again (exit_codes)", s.failed.id, out.Message)
	}
	if out := s.failed.missingProgram(); out != nil {
		return fmt.Sprintf("%s: %s; not tried again", s.failed.id, out.Message)
	}
	if trouble := s.failed.trouble(); trouble != "" {
		return trouble + "; no retries left"
	}
	return fmt.Sprintf("%s: no retries left", s.failed.id)
}

// firstFailed returns the first failed step, or nil. A failed step may still have running tasks.
func firstFailed(steps []jobStep) *jobStep {
	for i := range steps {
		if steps[i].failed != nil {
			return &steps[i]
		}
	}
	return nil
}

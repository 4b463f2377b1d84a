package reconciler

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Job decides what to do for a job. It is deterministic, does not depend on the order of the tasks, and keeps nothing
// of its input.
//
// All tasks of all steps whose needs are met are requested together. A failed task is tried again while its step has
// retries; free losses do not count. Once a task has no retries left, its step has failed. Nothing of the step begins
// any more, but running tasks may finish, because their work may be of use. Other steps continue, unless they need the
// failed one to succeed.
func Job(in JobInput) Decision {
	p := newPlan(in.Owner, in.Definitions, in.Now)
	if in.Spec != nil {
		p.owner = in.Spec.Owner()
	}
	p.recovery, p.clockSet = in.Recovery, in.ClockSet
	ends, tasks, all := endings{p}, jobTasks{p}, slots(in.Tasks)
	steps, strays := stepsOf(&in, all)
	resolveSteps(in.Spec, steps)
	// 1. Ended attempts get their outcome, and their remaining records are cleaned up.
	for _, s := range all {
		ends.conclude(s)
		ends.clean(s)
		p.stopEnded(s, nil)
	}
	// 2. Tasks that are not wanted, or exceed their time limit, are stopped.
	for _, s := range strays {
		p.stopLive(s, strayStop(in.Spec))
		ends.trim(s, 0)
	}
	for i := range steps {
		for _, s := range steps[i].tasks {
			if stop, ok := cancelStop(in.Spec); ok {
				p.stopLive(s, stop)
				if in.Spec.Deleted {
					ends.trim(s, 0)
				}
				continue
			}
			claims{p}.claimUnrecorded(s, in.desiredRecord(s))
			moves{p}.vacateJobTask(s)
			tasks.stopOverdue(s)
		}
	}
	tasks.unpackEarlier(&in)
	if in.Spec == nil {
		return p.Decision
	}
	tasks.pack(steps)
	// 3. Tasks that may run and do not are requested.
	concluded := tasks.withOutcomes(steps)
	resolveSteps(in.Spec, concluded)
	if !in.Spec.Deleted && !in.Spec.Cancelled {
		earlier := holdForEarlierRun(strays)
		if earlier == (cluster.Hold{}) && tasks.failOverdueGangs(&in, concluded) {
			resolveSteps(in.Spec, concluded)
		}
		tasks.requestTasks(in, earlier, steps, concluded)
	}
	// 4. A deleted job without tasks is removed. The end of a job is reported.
	p.remove(in.Spec.Deleted && len(in.Packed) == 0, all)
	current := jobStatusOf(&in, steps)
	if p.Message == "" {
		p.Message = current.Message
	}
	tasks.reportEnd(&in, concluded, current)
	tasks.cancelOverdue(in.Spec, current)
	if in.awaitsNeeds() {
		p.Begin, p.AwaitsNeeds = in.Unmet == "" && !in.Spec.Hold, in.Unmet != ""
	}
	tasks.expireJob(&in, current)
	return p.Decision
}

// jobTasks decides what a job's tasks have beyond those of a service: a time limit, tries, gangs and an end.
type jobTasks struct{ *plan }

// cancelOverdue requests that the job be cancelled once its deadline has passed.
func (p jobTasks) cancelOverdue(spec *cluster.Job, current JobStatus) {
	if spec.Deadline == 0 || spec.Cancelled || spec.Deleted || current.State.Ended() {
		return
	}
	if end := p.endOf(spec.RunSubmitted(), time.Duration(spec.Deadline)); end.After(p.now) {
		p.decideAgainAt(end)
		return
	}
	p.Cancel = true
}

// expireJob requests the deletion of a job whose retention time has passed.
func (p jobTasks) expireJob(in *JobInput, current JobStatus) {
	if in.Keep == 0 || in.Spec.Deleted || !current.State.Ended() {
		return
	}
	ended := current.Finished
	if in.Spec.Updated.After(ended) {
		ended = in.Spec.Updated // it was cancelled before anything ran, or written again since
	}
	if ended.IsZero() {
		return
	}
	if at := p.endOf(ended, in.Keep); at.After(p.now) {
		p.decideAgainAt(at)
		return
	}
	p.Expire = true
}

// desiredRecord returns the desired record of a wanted attempt of the slot, as far as the spec determines it.
func (in *JobInput) desiredRecord(s *slot) cluster.Desired {
	step := in.Spec.Step(s.parts.Step)
	return cluster.Desired{
		Owner: in.Spec.Owner(), Definition: step.Definition, Count: step.Count, Priority: int(in.Spec.Priority),
		TimeLimit: step.TimeLimit, OnDisconnect: step.OnDisconnect,
	}
}

func strayStop(spec *cluster.Job) cluster.Stop {
	s := cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonDeleted, Message: "the job was deleted"}
	if spec != nil && !spec.Deleted {
		s.Reason = cluster.ReasonReplaced
		s.Message = fmt.Sprintf("replaced by run %d of the job", spec.Generation)
	}
	return s
}

func cancelStop(spec *cluster.Job) (cluster.Stop, bool) {
	switch {
	case spec.Deleted:
		return cluster.Stop{
			Class: cluster.StopMandatory, Reason: cluster.ReasonDeleted, Message: "the job was deleted",
		}, true
	case spec.Cancelled:
		return cluster.Stop{
			Class: cluster.StopMandatory, Reason: cmp.Or(spec.CancelReason, cluster.ReasonCancelled),
			Message: cancelText(spec),
		}, true
	}
	return cluster.Stop{}, false
}

// cancelText says who cancelled the job.
func cancelText(spec *cluster.Job) string {
	if spec.CancelReason == cluster.ReasonDeadline {
		return fmt.Sprintf("the job did not end within its deadline of %s", spec.Deadline)
	}
	return "the job was cancelled"
}

// RunsLimited reports whether the attempt runs and has a time limit.
func (t *Task) RunsLimited() bool {
	return t.Desired != nil && t.Desired.TimeLimit != 0 && t.Outcome == nil && t.Observed != nil &&
		!t.Observed.Started.IsZero() && !t.Observed.State.Terminal()
}

// stopOverdue stops an attempt that its agent did not end within the time limit. The limit counts from the moment at
// which this leader first saw the attempt run: the agent alone knows the exact time, and its clock is another one.
func (p jobTasks) stopOverdue(s *slot) {
	for _, t := range s.attempts {
		if !t.live() || t.stopped() || !t.RunsLimited() {
			continue
		}
		d := t.Desired
		limit := time.Duration(d.TimeLimit) + TimeLimitMargin
		if def := p.definitions(d.Definition); def != nil {
			limit += time.Duration(def.Grace)
		}
		if t.Running < limit {
			p.decideAgainAt(p.now.Add(limit - t.Running))
			continue
		}
		p.addStop(t, cluster.Stop{
			Class: cluster.StopMandatory, Reason: cluster.ReasonTimeLimit,
			Message: fmt.Sprintf("exceeded its time_limit of %s", d.TimeLimit),
		})
	}
}

// holdForEarlierRun returns why no task may begin while tasks of an earlier run are live, or the zero value.
func holdForEarlierRun(strays []*slot) cluster.Hold {
	live := 0
	for _, s := range strays {
		if s.live() {
			live++
		}
	}
	if live == 0 {
		return cluster.Hold{}
	}
	return cluster.Hold{
		Reason:  cluster.ReasonOldAttempt,
		Message: fmt.Sprintf("waiting for %s of an earlier run of the job to end", countedTasks(live)),
	}
}

// requestTasks requests the next attempt of each task that may have one. Tasks that wait for an earlier run of the job
// or for another step are requested with a hold, so that they have a reason to wait. A needed step has ended once the
// tables hold its outcomes, because those of this decision may be refused. They already keep tasks of a failed or
// skipped step from being requested.
func (p jobTasks) requestTasks(in JobInput, earlier cluster.Hold, steps, concluded []jobStep) {
	requesting := 0
	for i := range steps {
		if steps[i].mayRequest() && concluded[i].mayRequest() {
			requesting++
		}
	}
	p.Pending = slices.Grow(p.Pending, requesting) // a Pending is large: few are allocated
	var own []cluster.Pending                      // of a step
	for i := range steps {
		step := &steps[i]
		if !step.mayRequest() || !concluded[i].mayRequest() {
			continue
		}
		template := in.template(step.Step)
		template.Since = step.ready
		template.Hold = cmp.Or(in.hold(), earlier, step.hold())
		requested := step.requested(in.Spec, step.Gang != nil || p.differs(step.Definition))
		requestAsGang(&template, in.Spec, step.Step, requested)
		own = slices.Grow(own[:0], len(requested)+1)
		for _, r := range requested {
			if next, ok := p.request(r.first, template, in.Spec.RunSubmitted(), jobBackoff()); ok {
				next.Further = r.count - 1
				own = append(own, next)
			}
		}
		p.Pending = append(p.Pending, step.holdBeyondParallelism(own)...)
	}
}

// differs reports whether the tasks of the definition differ in what they require of a node.
func (p *plan) differs(r cluster.Ref) bool {
	d := p.definitions(r)
	return d != nil && p.requirementsOf(d).volumesPerTask
}

// hold returns why no task of the job may begin, or the zero value.
func (in *JobInput) hold() cluster.Hold {
	switch {
	case in.Spec.Hold:
		return cluster.Hold{
			Reason: cluster.ReasonHold, Message: "the job is on hold: berth release " + in.Spec.Owner().String(),
		}
	case in.awaitsNeeds():
		return cluster.Hold{Reason: cluster.ReasonNeeds, Message: cmp.Or(in.Unmet, "its needs are met; it begins now")}
	}
	return cluster.Hold{}
}

// awaitsNeeds reports whether no task of the run has begun, and none may before the needs of the job are met.
func (in *JobInput) awaitsNeeds() bool {
	return in.Spec.AwaitsNeeds() && !in.Spec.Cancelled && !in.Spec.Deleted && !in.hasPacked() &&
		!slices.ContainsFunc(in.Tasks, func(t Task) bool {
			parts, _ := t.id().Parts()
			return parts.Generation == in.Spec.Generation
		})
}

// hasPacked reports whether tasks of the present run are packed.
func (in *JobInput) hasPacked() bool {
	return slices.ContainsFunc(in.Packed, func(one Packed) bool { return in.isPresent(one.Tasks) })
}

// template returns the request that all tasks of a step share.
func (in *JobInput) template(step *cluster.Step) cluster.Pending {
	return cluster.Pending{
		OwnerRev: in.SpecRev, Definition: step.Definition, Count: step.Count, Priority: int(in.Spec.Priority),
		TimeLimit: step.TimeLimit, OnDisconnect: step.OnDisconnect, Labels: in.Spec.Labels,
		Concurrency: step.Concurrency, JobConcurrency: in.Spec.Concurrency, User: in.Spec.SubmittedBy,
		Placement: joinConstraints(step.Placement, in.Cluster),
	}
}

// exhausted reports whether the task of the step failed and is not tried again: it has used all its tries without
// success, its program exited with a final code or was found missing twice, or it failed permanently without a
// placement.
func (s *slot) exhausted(step *cluster.Step) bool {
	return !s.succeeded() && (s.chargedFailures() > step.Retries || s.finalExit(step.ExitCodes) != nil ||
		s.missingProgram() != nil || s.gangFailure() != nil)
}

// maxMissingPrograms is how many attempts that find a program of the task missing make the task fail. The first one may
// have met a node that lacks the program, or a folder that was not mounted at that time.
const maxMissingPrograms = 2

// missingProgram returns the outcome of the newest attempt if it found a program of the task missing, and was the last
// one that may, else nil.
func (s *slot) missingProgram() *cluster.Outcome {
	t := s.newest()
	if t == nil || t.Outcome == nil || !isMissingProgram(t.Outcome) || s.settled(t.Outcome) ||
		s.countOutcomes(isMissingProgram) < maxMissingPrograms {
		return nil
	}
	return t.Outcome
}

// isMissingProgram reports whether an attempt failed because a program of the task does not exist.
func isMissingProgram(o *cluster.Outcome) bool {
	return o.State == cluster.StateFailed && o.Reason == cluster.ReasonNoProgram
}

// finalExit returns the outcome of the newest attempt if its program exited with a final code, else nil.
func (s *slot) finalExit(codes *cluster.ExitCodes) *cluster.Outcome {
	t := s.newest()
	if t == nil || t.Outcome == nil || t.Outcome.State != cluster.StateFailed ||
		t.Outcome.Reason != cluster.ReasonExit || t.Outcome.Exit == nil || t.Outcome.Exit.Signal != 0 ||
		s.settled(t.Outcome) || !codes.IsFinal(t.Outcome.Exit.Code) {
		return nil
	}
	return t.Outcome
}

// reportEnd emits the event of the job's end in the decision that writes its last outcome.
func (p jobTasks) reportEnd(in *JobInput, concluded []jobStep, current JobStatus) {
	if len(p.Conclusions) == 0 || current.State.Ended() {
		return
	}
	status := jobStatusOf(in, concluded)
	if !status.State.Ended() {
		return
	}
	owner := p.owner
	p.Events = append(p.Events, cluster.Event{
		Type: "job." + string(status.State), Cluster: owner.Cluster, Owner: &owner, Message: status.Message,
		Count: status.Total,
	})
}

// withOutcomes returns the steps with the outcomes that this decision writes.
func (p jobTasks) withOutcomes(steps []jobStep) []jobStep {
	all := slices.Clone(steps)
	for i := range all {
		cloned := false
		for k, s := range all[i].tasks {
			next := p.withOutcome(s)
			if next == s {
				continue
			}
			if !cloned {
				all[i].tasks, cloned = slices.Clone(all[i].tasks), true
			}
			all[i].tasks[k] = next
		}
	}
	return all
}

// withOutcome returns the slot with the outcomes that this decision writes, or the same slot if there are none.
func (p jobTasks) withOutcome(s *slot) *slot {
	if !slices.ContainsFunc(s.attempts, func(t *Task) bool { return p.outcomes[t] != nil }) {
		return s
	}
	next := &slot{id: s.id, parts: s.parts, retriedAt: s.retriedAt, forced: s.forced}
	for _, t := range s.attempts {
		if out := p.outcomes[t]; out != nil {
			c := *t
			c.Outcome = out
			t = &c
		}
		next.attempts = append(next.attempts, t)
	}
	return next
}

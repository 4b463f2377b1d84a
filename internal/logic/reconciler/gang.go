package reconciler

import (
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// requestAsGang marks a step's requested tasks as one gang. Tasks that wait for their next try belong to the gang, so
// all of them are placed together once the last one may be.
func requestAsGang(template *cluster.Pending, job *cluster.Job, step *cluster.Step, requested []taskRun) {
	if step.Gang == nil {
		return
	}
	template.Gang = fmt.Sprintf("%s.%s.%d", job.Owner(), step.Name, job.Generation)
	template.GangSize = len(requested)
}

// failOverdueGangs fails a step whose gang waited for its places longer than its deadline: the gang's first task fails
// permanently. The wait began when the last task of the gang began to wait, and not before the needed steps ended or
// the job was last written, such as by the end of its hold. These times come from records, so they survive a change of
// leader. The steps hold the outcomes of this decision, and get the new ones. failOverdueGangs reports whether there
// are any.
func (p jobTasks) failOverdueGangs(in *JobInput, steps []jobStep) (failed bool) {
	for i := range steps {
		step := &steps[i]
		if step.Gang == nil || step.Gang.Deadline == 0 || !step.mayBegin() || in.hold() != (cluster.Hold{}) {
			continue
		}
		waiting := step.unplaced(in.Spec, true)
		if len(waiting) == 0 {
			continue
		}
		since := later(step.ready, in.Spec.Updated)
		for _, r := range waiting {
			since = later(since, r.first.waitingSince(in.Spec.RunSubmitted()), p.nextAttemptAt(r.first, jobBackoff()))
		}
		if end := p.endOf(since, time.Duration(step.Gang.Deadline)); end.After(p.now) {
			p.decideAgainAt(end)
			continue
		}
		first := waiting[0].first
		out := p.failUnplaced(first, step.Step,
			fmt.Sprintf("%s of gang %s found no node within %s (deadline)", countedTasks(len(waiting)), step.Name,
				step.Gang.Deadline))
		next := &slot{
			id: first.id, parts: first.parts, retriedAt: first.retriedAt, forced: first.forced,
			attempts: append(slices.Clone(first.attempts), &Task{Attempt: cluster.Attempt{Outcome: out}}),
		}
		step.tasks = slices.Clone(step.tasks)
		if at, found := slices.BinarySearchFunc(step.tasks, next, compareSlots); found {
			step.tasks[at] = next
		} else {
			step.tasks = slices.Insert(step.tasks, at, next)
		}
		failed = true
	}
	return failed
}

// failUnplaced writes the outcome of an attempt that was never placed and has no records: its task has failed
// permanently.
func (p jobTasks) failUnplaced(s *slot, step *cluster.Step, message string) *cluster.Outcome {
	owner := p.owner
	c := Conclusion{
		Outcome: cluster.Outcome{
			Task: s.id, Attempt: s.nextNumber(), Owner: owner, Definition: step.Definition, State: cluster.StateFailed,
			Reason:  cluster.ReasonGang,
			Message: message, Ended: p.now,
		},
		Event: cluster.Event{
			Type: "task.failed", Cluster: owner.Cluster, Owner: &owner, Task: s.id, Attempt: s.nextNumber(),
			Reason: cluster.ReasonGang, Message: message,
		},
	}
	p.Conclusions = append(p.Conclusions, c)
	return &c.Outcome
}

// gangFailure returns the outcome by which the task failed permanently without a placement, or nil.
func (s *slot) gangFailure() *cluster.Outcome {
	t := s.newest()
	if t == nil || t.Outcome == nil || t.Outcome.State != cluster.StateFailed ||
		t.Outcome.Reason != cluster.ReasonGang || s.settled(t.Outcome) {
		return nil
	}
	return t.Outcome
}

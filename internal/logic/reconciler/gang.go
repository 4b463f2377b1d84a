package reconciler

import (
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// requestAsGang marks a step's requested tasks as one gang: all tasks that are neither live nor succeeded. Tasks that
// wait for their next try belong to the gang, so all of them are placed together once the last one may be.
func requestAsGang(template *cluster.Pending, job *cluster.Job, step *cluster.Step, tasks []*slot) {
	if step.Gang == nil {
		return
	}
	template.Gang = fmt.Sprintf("%s.%s.%d", job.Owner(), step.Name, job.Generation)
	template.GangSize = len(unplaced(tasks))
}

// unplaced returns those of a step's tasks that are to be placed.
func unplaced(tasks []*slot) (waiting []*slot) {
	for _, s := range tasks {
		if !s.live() && !s.succeeded() {
			waiting = append(waiting, s)
		}
	}
	return waiting
}

// failOverdueGangs ends the job if a gang waited for its places longer than its deadline: the gang's first task fails
// permanently. The wait began when the last task of the gang began to wait. That time comes from records, so it
// survives a change of leader. own holds the job's tasks including the outcomes of this decision; the result includes
// the new outcomes.
func (p jobTasks) failOverdueGangs(in *JobInput, own []*slot) []*slot {
	k := 0
	for i := range in.Spec.Steps {
		step := &in.Spec.Steps[i]
		tasks := own[k : k+step.Count]
		k += step.Count
		if step.Gang == nil || step.Gang.Deadline == 0 {
			continue
		}
		waiting := unplaced(tasks)
		if len(waiting) == 0 {
			continue
		}
		var since time.Time
		for _, s := range waiting {
			since = later(since, s.waitingSince(in.Spec.Lifespan), s.nextAttemptAt(jobBackoff()))
		}
		if end := since.Add(time.Duration(step.Gang.Deadline)); end.After(p.now) {
			p.decideAgainAt(end)
			continue
		}
		first := waiting[0]
		out := p.failUnplaced(first, step,
			fmt.Sprintf("%s of gang %s found no node within %s (deadline)", countedTasks(len(waiting)), step.Name,
				step.Gang.Deadline))
		own = slices.Clone(own)
		own[slices.Index(own, first)] = &slot{
			id: first.id, parts: first.parts,
			attempts: append(slices.Clone(first.attempts), &Task{Attempt: cluster.Attempt{Outcome: out}}),
		}
	}
	return own
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
		t.Outcome.Reason != cluster.ReasonGang {
		return nil
	}
	return t.Outcome
}

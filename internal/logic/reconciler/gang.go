package reconciler

import (
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// gang makes the tasks of a step that are asked for one: all that neither live nor have succeeded, those among them
// that have to wait before they are tried again. So they are placed together once the last of them may be.
func gang(template *cluster.Pending, job *cluster.Job, step *cluster.Step, tasks []*slot) {
	if step.Gang == nil {
		return
	}
	template.Gang = fmt.Sprintf("%s.%s.%d", job.Owner(), step.Name, job.Generation)
	template.GangSize = len(absent(tasks))
}

// absent returns those of a step's tasks that are to be placed.
func absent(tasks []*slot) (waiting []*slot) {
	for _, s := range tasks {
		if !s.live() && !s.succeeded() {
			waiting = append(waiting, s)
		}
	}
	return waiting
}

// expire ends the job where tasks of a gang waited for places together longer than its deadline: the first of them
// fails for good. The clock is the records': it began when the last of them began to wait, whoever led then. It is
// given the job's tasks as they will be when what is decided so far is written, and returns them with that.
func (p *plan) expire(in *JobInput, own []*slot) []*slot {
	k := 0
	for i := range in.Spec.Steps {
		step := &in.Spec.Steps[i]
		tasks := own[k : k+step.Count]
		k += step.Count
		if step.Gang == nil || step.Gang.Deadline == 0 {
			continue
		}
		waiting := absent(tasks)
		if len(waiting) == 0 {
			continue
		}
		var since time.Time
		for _, s := range waiting {
			since = later(since, s.since(in.Spec.Lifespan), s.ready(jobBackoff()))
		}
		if end := since.Add(time.Duration(step.Gang.Deadline)); end.After(p.now) {
			p.look(end)
			continue
		}
		first := waiting[0]
		out := p.forgone(first, step,
			fmt.Sprintf("step %s is a gang, of which %s not find places together within %s", step.Name,
				tasksAre(len(waiting), "did", "did"), step.Gang.Deadline))
		own = slices.Clone(own)
		own[slices.Index(own, first)] = &slot{
			id: first.id, parts: first.parts,
			attempts: append(slices.Clone(first.attempts), &Task{Attempt: cluster.Attempt{Outcome: out}}),
		}
	}
	return own
}

// forgone writes the outcome of an attempt that was never placed, as nothing of it stands anywhere: its task has failed
// for good.
func (p *plan) forgone(s *slot, step *cluster.Step, message string) *cluster.Outcome {
	owner := p.owner
	c := Conclusion{
		Outcome: cluster.Outcome{
			Task: s.id, Attempt: s.next(), Owner: owner, Definition: step.Definition, State: cluster.StateFailed,
			Reason:  cluster.ReasonGang,
			Message: message, Ended: p.now,
		},
		Event: cluster.Event{
			Type: "task.failed", Cluster: owner.Cluster, Owner: &owner, Task: s.id, Attempt: s.next(),
			Reason: cluster.ReasonGang, Message: message,
		},
	}
	p.Conclusions = append(p.Conclusions, c)
	return &c.Outcome
}

// forgoes returns the outcome by which the task failed for good without being placed, or nil.
func (s *slot) forgoes() *cluster.Outcome {
	t := s.newest()
	if t == nil || t.Outcome == nil || t.Outcome.State != cluster.StateFailed ||
		t.Outcome.Reason != cluster.ReasonGang {
		return nil
	}
	return t.Outcome
}

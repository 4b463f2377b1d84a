package reconciler

import (
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Job decides what a job needs now. It is deterministic and does not depend on the order of the
// tasks; it keeps nothing of its input.
//
// All tasks of all steps are asked for at once. A task that failed is tried again while its step has
// retries; losses free of charge do not count. Once a task has none left, the job has failed:
// nothing is started any more, and what runs is let finish, for its work may be of use.
func Job(in JobInput) Decision {
	p := newPlan(in.Owner, in.Definitions, in.Now)
	if in.Spec != nil {
		p.owner = in.Spec.Owner()
	}
	p.recovery = in.Recovery
	all := slots(in.Tasks)
	own, strays := split(in.Spec, all)
	// 1. What has ended gets its outcome, and what is left of it is cleaned up.
	for _, s := range all {
		p.conclude(s)
		p.clean(s)
		p.settle(s, nil)
	}
	// 2. What is not wanted is stopped; what outlives its limit too.
	for _, s := range strays {
		p.halt(s, strayStop(in.Spec))
		p.trim(s, 0)
	}
	for _, s := range own {
		if stop, ok := cancelStop(in.Spec); ok {
			p.halt(s, stop)
			if in.Spec.Deleted {
				p.trim(s, 0)
			}
			continue
		}
		p.claim(s, in.described(s))
		p.vacate(s)
		p.overtime(s)
	}
	// 3. Tasks that may run and do not are asked for.
	then := make([]*slot, len(own))
	for i, s := range own {
		then[i] = p.after(s)
	}
	if in.Spec != nil && spentTask(in.Spec, then) == nil && in.free(strays) {
		if then = p.expire(&in, then); spentTask(in.Spec, then) == nil {
			p.dispatch(in, own)
		}
	}
	// 4. A deleted job without tasks is removed; the end of a job is told.
	p.remove(in.Spec != nil && in.Spec.Deleted, all)
	if in.Spec != nil {
		now := jobStatusOf(in.Spec, own)
		if p.Message == "" {
			p.Message = now.Message
		}
		p.tellEnd(in.Spec, then, now)
		p.retain(&in, now)
	}
	return p.Decision
}

// retain asks for the deletion of a job that ended long ago. A cron keeps its own jobs by their number.
func (p *plan) retain(in *JobInput, now JobStatus) {
	if in.Keep == 0 || in.Spec.Cron != "" || in.Spec.Deleted || !now.Done() {
		return
	}
	ended := now.Finished
	if in.Spec.Updated.After(ended) {
		ended = in.Spec.Updated // it was cancelled before anything ran, or written again since
	}
	if ended.IsZero() {
		return
	}
	if at := ended.Add(in.Keep); at.After(in.Now) {
		p.look(at)
		return
	}
	p.Expire = true
}

// described returns what an attempt of the slot is wanted for.
func (in *JobInput) described(s *slot) cluster.Desired {
	step := in.Spec.Step(s.parts.Step)
	return cluster.Desired{
		Owner: in.Spec.Owner(), Definition: step.Definition, Count: step.Count, Priority: in.Spec.Priority,
		TimeLimit: step.TimeLimit, OnDisconnect: step.OnDisconnect,
	}
}

// split parts the tasks of the job's spec, complete and in the order of the steps, from those that it does not know.
func split(spec *cluster.Job, all []*slot) (own, strays []*slot) {
	if spec == nil {
		return nil, all
	}
	byID := make(map[cluster.TaskID]*slot, len(all))
	for _, s := range all {
		byID[s.id] = s
	}
	for i := range spec.Steps {
		step := &spec.Steps[i]
		for k := range step.Count {
			id := cluster.JobTask(spec.Cluster, spec.Name, spec.Generation, step.Name, k)
			s := byID[id]
			if s == nil {
				s = newSlot(id)
			}
			delete(byID, id)
			own = append(own, s)
		}
	}
	for _, s := range all {
		if byID[s.id] != nil {
			strays = append(strays, s)
		}
	}
	return own, strays
}

func strayStop(spec *cluster.Job) cluster.Stop {
	s := cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonDeleted, Message: "the job was deleted"}
	if spec != nil && !spec.Deleted {
		s.Reason, s.Message = cluster.ReasonReplaced, fmt.Sprintf("the job runs anew as generation %d", spec.Generation)
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
			Class: cluster.StopMandatory, Reason: cluster.ReasonCancelled, Message: "the job was cancelled",
		}, true
	}
	return cluster.Stop{}, false
}

// overtime stops an attempt whose agent did not end it in time.
func (p *plan) overtime(s *slot) {
	for _, t := range s.attempts {
		d, o := t.Desired, t.Observed
		if !t.live() || t.stopped() || d == nil || d.TimeLimit == 0 || o == nil || o.Started.IsZero() ||
			o.State.Terminal() {
			continue
		}
		limit := time.Duration(d.TimeLimit) + TimeLimitMargin
		if def := p.definitions(d.Definition); def != nil {
			limit += time.Duration(def.Grace)
		}
		if end := o.Started.Add(limit); end.After(p.now) {
			p.look(end)
			continue
		}
		p.write(t, cluster.Stop{
			Class: cluster.StopMandatory, Reason: cluster.ReasonTimeLimit,
			Message: fmt.Sprintf("it ran longer than its time limit of %s", d.TimeLimit),
		})
	}
}

// free reports whether the job may begin tasks: somebody wants it, and no earlier run of it is on its way out.
func (in *JobInput) free(strays []*slot) bool {
	return !in.Spec.Deleted && !in.Spec.Cancelled && !slices.ContainsFunc(strays, (*slot).live)
}

// dispatch asks for the next attempt of each task that has one to come.
func (p *plan) dispatch(in JobInput, own []*slot) {
	k := 0
	if n := len(absent(own)); n > 0 { // they are large
		p.Pending = make([]cluster.Pending, 0, n)
	}
	for i := range in.Spec.Steps {
		step := &in.Spec.Steps[i]
		template := in.template(step)
		gang(&template, in.Spec, step, own[k:k+step.Count])
		for range step.Count {
			if s := own[k]; !s.succeeded() {
				p.pend(s, template, in.Spec.Lifespan, jobBackoff())
			}
			k++
		}
	}
}

// template returns what all tasks of a step ask for.
func (in *JobInput) template(step *cluster.Step) cluster.Pending {
	return cluster.Pending{
		OwnerRev: in.SpecRev, Definition: step.Definition, Count: step.Count, Priority: in.Spec.Priority,
		TimeLimit: step.TimeLimit, OnDisconnect: step.OnDisconnect, Labels: in.Spec.Labels,
		Placement: joined(step.Placement, in.ClusterConstraints),
	}
}

// spentTask returns the first task that failed and has no retries left, or nil.
func spentTask(spec *cluster.Job, own []*slot) *slot {
	k := 0
	for i := range spec.Steps {
		for range spec.Steps[i].Count {
			if s := own[k]; s.spent(spec.Steps[i].Retries) {
				return s
			}
			k++
		}
	}
	return nil
}

// spent reports whether the task has used all its tries without success, or has failed without one.
func (s *slot) spent(retries int) bool {
	return !s.succeeded() && (s.charged() > retries || s.forgoes() != nil)
}

// tellEnd emits the event of the job's end in the decision that writes its last outcome.
func (p *plan) tellEnd(spec *cluster.Job, then []*slot, now JobStatus) {
	if len(p.Conclusions) == 0 || now.Done() {
		return
	}
	status := jobStatusOf(spec, then)
	if !status.Done() {
		return
	}
	owner := p.owner
	p.Events = append(p.Events, cluster.Event{
		Type: "job." + status.State, Cluster: owner.Cluster, Owner: &owner, Message: status.Message,
		Count: status.Total,
	})
}

// after returns the slot as it will be when the decision's outcomes are written.
func (p *plan) after(s *slot) *slot {
	if !slices.ContainsFunc(s.attempts, func(t *Task) bool { return p.ended[t] != nil }) {
		return s
	}
	next := &slot{id: s.id, parts: s.parts}
	for _, t := range s.attempts {
		if out := p.ended[t]; out != nil {
			c := *t
			c.Outcome = out
			t = &c
		}
		next.attempts = append(next.attempts, t)
	}
	return next
}

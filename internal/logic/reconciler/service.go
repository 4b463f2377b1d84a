package reconciler

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
)

// Service decides what a service needs now. It is deterministic and does not depend on the order of the
// tasks; it keeps nothing of its input.
func Service(in ServiceInput) Decision {
	p := newPlan(in.Owner, in.Definitions, in.Now)
	if in.Spec != nil {
		p.owner, p.definition, p.disconnect = in.Spec.Owner(), in.Spec.Definition, in.disconnect()
		policy := newReschedule(in.Spec)
		p.policy = &policy
	}
	p.recovery, p.without = in.Recovery, in.Without
	all := slots(in.Tasks)
	p.lives = make(map[uint64]bool)
	for _, s := range all {
		if s.live() {
			p.lives[s.parts.Generation] = true
		}
	}
	// 1. What has ended gets its outcome, and what is left of it is cleaned up.
	for _, s := range all {
		p.conclude(s)
		p.clean(s)
	}
	// 2. Each task of the service, of every generation, is wanted, or ends.
	var roll *rollout
	var wanted []*slot
	switch {
	case in.daemon() && in.wants():
		if roll = p.newDaemon(&in, all); roll.n > 0 {
			roll.track()
		}
		wanted = roll.spread()
	case in.wants():
		roll = p.newRollout(&in, all)
		roll.track()
		wanted = roll.choose()
	}
	if roll != nil {
		roll.explain()
	}
	keep := make(map[*slot]bool, len(wanted))
	for _, s := range wanted {
		keep[s] = true
	}
	p.budget = p.newBudget(in.Spec, roll, all)
	granted := p.budget.granted(slices.DeleteFunc(slices.Clone(all), func(s *slot) bool { return keep[s] }))
	waiting := 0
	for _, s := range all {
		if in.Spec != nil && !in.Spec.Deleted && !in.Spec.Stopped {
			p.permit(s, keep[s])
		}
		if !keep[s] {
			waiting += p.dismiss(s, &in, dismissal{granted[s], roll.failed()})
			continue
		}
		p.claim(s, in.described(s))
		p.settle(s, nil)
		p.trim(s, p.policy.kept())
	}
	// 3. Those that are wanted and have no live attempt are asked for, and those that have to leave their node.
	for _, s := range wanted {
		if !in.daemon() {
			p.yield(s)
		}
	}
	for _, s := range wanted {
		template := in.template(s)
		roll.aim(s, &template)
		if to := p.target(s); to != "" && template.Only == "" {
			template.Only = to
		}
		p.pend(s, template, in.Spec.Lifespan, p.policy.backoff)
		p.move(s, template)
	}
	// 4. A deleted service without tasks is removed.
	p.remove(in.Spec != nil && in.Spec.Deleted, all)
	if p.Message == "" {
		if roll != nil && roll.rec.Generation != 0 {
			in.Rollout = &roll.rec
		}
		p.Message = statusOf(&in, all).Message + linger(waiting)
	}
	return p.Decision
}

// template returns what all tasks of a slot's generation ask for. A task of an older generation runs
// the definition that it ran before.
func (in *ServiceInput) template(s *slot) cluster.Pending {
	t := cluster.Pending{
		OwnerRev: in.SpecRev, Definition: in.Spec.Definition, Count: in.Spec.Count, Priority: in.Spec.Priority,
		OnDisconnect: in.disconnect(), Placement: joined(in.Spec.Placement, in.ClusterConstraints),
		Restarted: in.Spec.Restarted,
		Labels:    in.Spec.Labels,
	}
	if s.parts.Generation != in.Spec.Generation {
		t.Definition = s.definition()
	}
	return t
}

// described returns what an attempt of the slot is wanted for.
func (in *ServiceInput) described(s *slot) cluster.Desired {
	return cluster.Desired{
		Owner: in.Spec.Owner(), Definition: in.template(s).Definition, Count: in.Spec.Count, Priority: in.Spec.Priority,
		OnDisconnect: in.disconnect(),
	}
}

// definition returns what the newest attempt of the slot runs or ran.
func (s *slot) definition() cluster.Ref {
	if len(s.attempts) == 0 {
		return s.runs
	}
	for _, t := range slices.Backward(s.attempts) {
		if d := t.Desired; d != nil {
			return d.Definition
		}
		if o := t.Outcome; o != nil {
			return o.Definition
		}
		if o := t.Observed; o != nil && o.Definition != (cluster.Ref{}) {
			return o.Definition
		}
	}
	return cluster.Ref{}
}

// begun is 1 for a task that was placed and that its owner has not given up since, else 0.
func (s *slot) begun() int {
	if s.live() || s.healthy() || len(s.attempts) > 0 && !s.retired() {
		return 1
	}
	return 0
}

// candidate reports whether a task of an older generation may stay: it lives and is not on its way out, or it
// ended without being told to and can be run again.
func (s *slot) candidate(definitions Definitions) bool {
	if s.live() {
		return !s.leaving()
	}
	t := s.newest()
	if t == nil || s.retired() || definitions(s.definition()) == nil {
		return false
	}
	return t.Outcome.Started
}

// hopeless reports whether the task is of no use as it is: it fails its checks, ends again and again, or ended badly
// for good.
func (s *slot) hopeless() bool {
	t := s.newest()
	switch {
	case s.healthy() || t == nil:
		return false
	case !s.live():
		return failure(t.Outcome)
	case t.away():
		return false
	}
	v := lifecycle.Shown(t.Attempt)
	return v.Health == cluster.HealthFailing || v.State.Terminal() ||
		v.State != cluster.StateRunning && t.Observed != nil && t.Observed.Restarts > 0
}

// better orders tasks of older generations by how much they are worth keeping.
func better(a, b *slot) int {
	return cmp.Or(cmp.Compare(b.worth(), a.worth()), -cmp.Compare(a.parts.Generation, b.parts.Generation),
		cmp.Compare(a.parts.Index, b.parts.Index), cmp.Compare(a.id, b.id))
}

// What a task of an older generation is worth.
const (
	worthSick     = iota // it fails, ends again and again, or its node is silent
	worthRevive          // it was well until it ended
	worthStarting        // it is on its way
	worthRunning         // it runs, and may become healthy
	worthHealthy
)

func (s *slot) worth() int {
	if s.healthy() {
		return worthHealthy
	}
	t := s.newest()
	switch {
	case t == nil:
		return worthRevive
	case s.hopeless() || s.live() && t.away():
		return worthSick
	case !s.live():
		return worthRevive
	case lifecycle.Shown(t.Attempt).State == cluster.StateRunning:
		return worthRunning
	}
	return worthStarting
}

// dismissal says whether the budget grants the end of a task, and whether the rollout that began it has failed.
type dismissal struct{ granted, failed bool }

// dismiss ends a task that the service does not want, if the budget grants it or it must end, and returns 1 if it
// waits.
func (p *plan) dismiss(s *slot, in *ServiceInput, how dismissal) (waits int) {
	spec := in.Spec
	stop := cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonScaleDown}
	switch {
	case spec == nil || spec.Deleted:
		stop.Class, stop.Reason, stop.Message = cluster.StopMandatory, cluster.ReasonDeleted, "the service was deleted"
	case spec.Stopped:
		stop.Class, stop.Reason, stop.Message = cluster.StopMandatory, cluster.ReasonDeleted, "the service was stopped"
	case !in.newest(s) && in.wants():
		stop.Reason = cluster.ReasonRollout
		stop.Message = fmt.Sprintf("replaced by generation %d, which runs %s", spec.Generation, spec.Definition)
	default:
		stop.Message = fmt.Sprintf("%d tasks are wanted", spec.Count)
	}
	if out, ok := in.expelled(s); ok && stop.Class == cluster.StopVoluntary {
		stop = out
	}
	if how.failed && in.newest(s) && s.parts.Index < spec.Count {
		stop.Reason, stop.Message = cluster.ReasonRollout,
			fmt.Sprintf("the rollout of generation %d failed", spec.Generation)
	}
	if stop.Class == cluster.StopVoluntary && !how.granted {
		if t := s.newest(); t != nil && t.live() && !t.stopped() {
			p.wait(t, fmt.Sprintf("%s goes on: %d of %d are healthy, at least %d are to be once it has stopped", s.id,
				p.budget.healthy, p.budget.wanted, p.budget.least))
		}
		return 1
	}
	p.halt(s, stop)
	p.settle(s, &stop)
	keep := 0
	switch {
	case spec == nil || spec.Deleted:
	case in.newest(s):
		keep = p.policy.kept()
	case s.parts.Generation == spec.Rollout.Reverted, p.lives[s.parts.Generation], in.proven(s):
		// one that failed is looked into;
		// others of its version may be begun again, and the numbers of its attempts are not
		keep = 1
	}
	p.trim(s, keep)
	return 0
}

// proven reports whether the task is of the last version that was healthy, of which tasks may be begun again.
func (in *ServiceInput) proven(s *slot) bool {
	return in.Rollout != nil && in.Rollout.Healthy != nil && s.parts.Generation == in.Rollout.Healthy.Generation
}

// remove asks for the removal of a deleted owner's record once no record of any task is left. Until then its
// generation is remembered, so that an owner of the same name cannot use a task id again.
func (p *plan) remove(deleted bool, all []*slot) {
	for _, s := range all {
		if len(s.attempts) > 0 {
			return
		}
	}
	p.Remove = deleted
}

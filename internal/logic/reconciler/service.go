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
		p.owner, p.definition, p.disconnect = in.Spec.Owner(), in.Spec.Definition, in.Spec.OnDisconnect
	}
	p.recovery, p.without = in.Recovery, in.Without
	all := slots(in.Tasks)
	// 1. What has ended gets its outcome, and what is left of it is cleaned up.
	for _, s := range all {
		p.conclude(s)
		p.clean(s)
	}
	// 2. Each task of the service, of every generation, is wanted, or ends.
	wanted := choose(in.Spec, all, p.definitions)
	keep := make(map[*slot]bool, len(wanted))
	for _, s := range wanted {
		keep[s] = true
	}
	p.budget = p.newBudget(in.Spec, all)
	granted := p.budget.granted(slices.DeleteFunc(slices.Clone(all), func(s *slot) bool { return keep[s] }))
	waiting := 0
	for _, s := range all {
		if !keep[s] {
			waiting += p.dismiss(s, in.Spec, granted[s])
			continue
		}
		p.claim(s, in.described(s))
		p.settle(s, nil)
		p.trim(s, KeptOutcomes)
	}
	// 3. Those that are wanted and have no live attempt are asked for, and those that have to leave their node.
	for _, s := range wanted {
		p.pend(s, in.template(s), in.Spec.Lifespan, MaxDelay)
		p.move(s, in.template(s))
	}
	// 4. A deleted service without tasks is removed.
	p.remove(in.Spec != nil && in.Spec.Deleted, all)
	if p.Message == "" {
		p.Message = statusOf(in.Spec, all).Message + linger(waiting)
	}
	return p.Decision
}

// template returns what all tasks of a slot's generation ask for. A task of an older generation runs
// the definition that it ran before.
func (in *ServiceInput) template(s *slot) cluster.Pending {
	t := cluster.Pending{
		OwnerRev: in.SpecRev, Definition: in.Spec.Definition, Count: in.Spec.Count, Priority: in.Spec.Priority,
		OnDisconnect: in.Spec.OnDisconnect, Placement: joined(in.Spec.Placement, in.ClusterConstraints),
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
		OnDisconnect: in.Spec.OnDisconnect,
	}
}

// definition returns what the newest attempt of the slot runs or ran.
func (s *slot) definition() cluster.Ref {
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

// choose picks the tasks that a service wants now, of its own generation and, during a rollout, of older ones.
//
// Let n be the count and h the healthy tasks of the newest generation. Of the older generations the best n - h tasks
// stay, so that a healthy one is only ever given up for a healthy one. It is one less where new and
// old cannot live side by side, or where the last of them is sick and so has nothing to lose. The newest generation
// gets one task more than it has begun once all that it has begun are healthy; and in any case as many as the
// older ones leave open: at a first deployment everything at once.
func choose(spec *cluster.Service, all []*slot, definitions Definitions) []*slot {
	if spec == nil || spec.Desired() == 0 {
		return nil
	}
	n := spec.Desired()
	fresh, begun, healthy := newest(spec, all)
	d := definitions(spec.Definition)
	pinned := d != nil && d.Pinned()

	var old []*slot
	taken := 0 // by tasks of older generations that live, leaving ones too
	for _, s := range all {
		if s.parts.Generation == spec.Generation {
			continue
		}
		if s.live() {
			taken++
		}
		if s.candidate(definitions) {
			old = append(old, s)
		}
	}
	room := n - healthy
	if pinned {
		room--
	}
	slices.SortStableFunc(old, better)
	old = old[:max(0, min(room, len(old)))]
	if k := len(old); !pinned && k > 0 && k == room && old[k-1].worth() <= worthSick {
		old = old[:k-1]
	}

	target := n - len(old)
	if pinned {
		for _, s := range old {
			if !s.live() {
				taken++
			}
		}
		target = n - taken
	} else if begun == healthy {
		target = max(target, begun+1)
	}
	slices.SortStableFunc(fresh, func(a, b *slot) int {
		return cmp.Or(cmp.Compare(b.begun(), a.begun()), cmp.Compare(a.parts.Index, b.parts.Index))
	})
	wanted := slices.Concat(fresh[:max(begun, min(target, n))], old)
	slices.SortFunc(wanted, compareSlots)
	return wanted
}

// newest returns the tasks of the service's own generation by index, how many of them were begun, and how many of
// those are healthy.
func newest(spec *cluster.Service, all []*slot) (fresh []*slot, begun, healthy int) {
	fresh = make([]*slot, spec.Desired())
	for _, s := range all {
		if s.parts.Generation == spec.Generation && s.parts.Step == "" && s.parts.Index < len(fresh) {
			fresh[s.parts.Index] = s
		}
	}
	for i, s := range fresh {
		if s == nil {
			fresh[i] = newSlot(cluster.ServiceTask(spec.Cluster, spec.Name, spec.Generation, i))
			continue
		}
		begun += s.begun()
		if s.healthy() {
			healthy++
		}
	}
	return fresh, begun, healthy
}

// begun is 1 for a task that was placed and that its owner has not given up since, else 0.
func (s *slot) begun() int {
	if s.live() || s.healthy() || len(s.attempts) > 0 && !s.retired() {
		return 1
	}
	return 0
}

// candidate reports whether a task of an older generation may stay: it lives and is not on its way out, or it
// was well until it ended and can be run again.
func (s *slot) candidate(definitions Definitions) bool {
	if s.live() {
		return !s.leaving()
	}
	t := s.newest()
	if t == nil || s.retired() || definitions(s.definition()) == nil {
		return false
	}
	o := t.Outcome
	return o.Started && (o.State == cluster.StateLost || o.State == cluster.StateCancelled || !failure(o))
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
	if !s.live() {
		return worthRevive
	}
	t := s.newest()
	v := lifecycle.Shown(t.Attempt)
	switch {
	case t.away() || v.Health == cluster.HealthFailing || v.State.Terminal():
		return worthSick
	case v.State == cluster.StateRunning:
		return worthRunning
	case t.Observed != nil && t.Observed.Restarts > 0:
		return worthSick
	}
	return worthStarting
}

// dismiss ends a task that the service does not want, if the budget grants it or it must end, and returns 1 if it waits.
func (p *plan) dismiss(s *slot, spec *cluster.Service, granted bool) (waits int) {
	stop := cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonScaleDown}
	switch {
	case spec == nil || spec.Deleted:
		stop.Class, stop.Reason, stop.Message = cluster.StopMandatory, cluster.ReasonDeleted, "the service was deleted"
	case spec.Stopped:
		stop.Class, stop.Reason, stop.Message = cluster.StopMandatory, cluster.ReasonDeleted, "the service was stopped"
	case s.parts.Generation != spec.Generation && spec.Count > 0:
		stop.Reason = cluster.ReasonRollout
		stop.Message = fmt.Sprintf("replaced by generation %d, which runs %s", spec.Generation, spec.Definition)
	default:
		stop.Message = fmt.Sprintf("%d tasks are wanted", spec.Count)
	}
	if stop.Class == cluster.StopVoluntary && !granted {
		return 1
	}
	p.halt(s, stop)
	p.settle(s, &stop)
	keep := 0
	if spec != nil && !spec.Deleted && s.parts.Generation == spec.Generation {
		keep = KeptOutcomes
	}
	p.trim(s, keep)
	return 0
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

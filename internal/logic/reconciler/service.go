package reconciler

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
)

// Service decides what to do for a service. It is deterministic, does not depend on the order of the tasks, and keeps
// nothing of its input.
func Service(in ServiceInput) Decision {
	p := newPlan(in.Owner, in.Definitions, in.Now)
	if in.Spec != nil {
		p.owner, p.definition, p.disconnect = in.Spec.Owner(), in.Spec.Definition, in.Spec.DisconnectPolicy()
		policy := newReschedule(in.Spec)
		p.policy = &policy
	}
	p.recovery, p.without, p.clockSet = in.Recovery, in.Without, in.ClockSet
	ends, leave, all := endings{p}, moves{p}, slots(in.Tasks)
	p.liveGenerations = make(map[uint64]bool)
	for _, s := range all {
		if s.live() {
			p.liveGenerations[s.parts.Generation] = true
		}
	}
	// 1. Ended attempts get their outcome, and their remaining records are cleaned up.
	for _, s := range all {
		ends.conclude(s)
		ends.clean(s)
	}
	// 2. Each task, of every generation, is kept or ended.
	var roll *rollout
	var wanted []*slot
	switch {
	case in.daemon() && in.wantsTasks():
		if roll = p.newDaemon(&in, all); roll.n > 0 {
			in.recordProgress(roll)
		}
		wanted = daemonChoice{roll}.chooseDaemonTasks()
	case in.wantsTasks():
		roll = p.newRollout(&in, all)
		in.recordProgress(roll)
		wanted = taskChoice{roll}.chooseTasks()
	}
	if roll != nil {
		roll.explainWait()
	}
	p.AwaitsNeeds = in.awaitsNeeds()
	keep := make(map[*slot]bool, len(wanted))
	for _, s := range wanted {
		keep[s], p.liveGenerations[s.parts.Generation] = true, true
	}
	p.budget = p.newBudget(in.Spec, roll, all)
	granted := p.budget.grantStops(slices.DeleteFunc(slices.Clone(all), func(s *slot) bool { return keep[s] }))
	waiting := 0
	for _, s := range all {
		if in.Spec != nil && !in.Spec.Deleted && !in.Spec.Stopped {
			permits{p}.permit(s, keep[s])
		}
		if !keep[s] {
			waiting += p.endUnwanted(s, &in, dismissal{granted[s], roll.failed()})
			continue
		}
		ends.keepWanted(s, in.desiredRecord(s))
	}
	// 3. Wanted tasks without a live attempt are requested, and tasks that must leave their node are moved.
	for _, s := range wanted {
		if !in.daemon() {
			leave.endLeaving(s)
		}
	}
	for _, s := range wanted {
		template := in.template(s)
		roll.setNode(s, &template)
		if to := leave.onlyNode(s); to != "" && template.OnlyNode == "" {
			template.OnlyNode = to
		}
		p.requestAttempt(s, template, requestedAt(in.Spec.Lifespan), p.policy.backoff)
		leave.move(s, template)
	}
	// 4. A deleted service without tasks is removed.
	p.remove(in.Spec != nil && in.Spec.Deleted, all)
	if p.Message == "" {
		if roll != nil && roll.rec.Generation != 0 && !p.AwaitsNeeds {
			in.Rollout = &roll.rec
		}
		p.Message = statusOf(&in, all).Message + describeUnwanted(waiting)
	}
	return p.Decision
}

// awaitsNeeds reports whether the first task of the service waits for its needs. The record of a rollout says that it
// has waited already: without the record, no deadline of the rollout begins. Tasks of an earlier service of the name do
// not count.
func (in *ServiceInput) awaitsNeeds() bool {
	return in.Unmet != "" && in.Spec != nil && in.wantsTasks() && in.Rollout == nil &&
		!slices.ContainsFunc(in.Tasks, func(t Task) bool {
			parts, _ := t.id().Parts()
			return parts.Generation >= max(in.Spec.Restarted, 1)
		})
}

// recordProgress keeps the record of a rollout, which begins once the needs of the service are met.
func (in *ServiceInput) recordProgress(roll *rollout) {
	if in.awaitsNeeds() {
		progress{roll}.takeRecord()
		return
	}
	progress{roll}.updateRecord()
}

// template returns the request that all tasks of a slot's generation share. A task of an older generation runs its
// earlier definition.
func (in *ServiceInput) template(s *slot) cluster.Pending {
	t := cluster.Pending{
		OwnerRev: in.SpecRev, Definition: in.Spec.Definition, Count: in.Spec.Count, Priority: int(in.Spec.Priority),
		OnDisconnect: in.Spec.DisconnectPolicy(), Placement: joinConstraints(in.Spec.Placement, in.Cluster),
		Restarted: in.Spec.Restarted,
		Labels:    in.Spec.Labels,
	}
	if in.awaitsNeeds() {
		t.Hold = cluster.Hold{Reason: cluster.ReasonNeeds, Message: in.Unmet}
	}
	if s.parts.Generation != in.Spec.Generation {
		t.Definition = s.definition()
	}
	return t
}

// desiredRecord returns the desired record of a wanted attempt of the slot, as far as the spec determines it.
func (in *ServiceInput) desiredRecord(s *slot) cluster.Desired {
	return cluster.Desired{
		Owner: in.Spec.Owner(), Definition: in.template(s).Definition, Count: in.Spec.Count,
		Priority:     int(in.Spec.Priority),
		OnDisconnect: in.Spec.DisconnectPolicy(),
	}
}

// definition returns what the newest attempt of the slot runs or ran.
func (s *slot) definition() cluster.Ref {
	if len(s.attempts) == 0 {
		return s.version
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

// begun returns 1 for a task that was placed and not given up by its owner since, else 0.
func (s *slot) begun() int {
	if s.live() || s.healthy() || len(s.attempts) > 0 && !s.retired() {
		return 1
	}
	return 0
}

// mayStay reports whether a task of an older generation may stay. It is live and has no final stop, or it ended without
// an order to stop and can run again.
func (s *slot) mayStay(definitions Definitions) bool {
	if s.live() {
		return !s.endsForGood()
	}
	t := s.newest()
	if t == nil || s.retired() || definitions(s.definition()) == nil {
		return false
	}
	return t.Outcome.Started
}

// failing reports whether the task is of no use in its state: it fails its checks, restarts repeatedly, or its
// last attempt failed.
func (s *slot) failing() bool {
	t := s.newest()
	switch {
	case s.healthy() || t == nil:
		return false
	case !s.live():
		return isFailure(t.Outcome)
	case t.unreachable():
		return false
	}
	v := lifecycle.Shown(t.Attempt)
	return v.Health == cluster.HealthFailing || v.State.Terminal() ||
		v.State != cluster.StateRunning && t.Observed != nil && t.Observed.Restarts > 0
}

// better orders tasks of older generations, those first that are most worth keeping.
func better(a, b *slot) int {
	return cmp.Or(cmp.Compare(b.rank(), a.rank()), -cmp.Compare(a.parts.Generation, b.parts.Generation),
		cmp.Compare(a.parts.Index, b.parts.Index), cmp.Compare(a.id, b.id))
}

// Ranks of tasks of older generations: a rollout keeps tasks of a higher rank.
const (
	rankFailing     = iota // the task fails or its node is silent
	rankRestartable        // the task was healthy until it ended
	rankStarting           // an attempt is placed and does not run yet
	rankRunning            // an attempt runs and may become healthy
	rankHealthy
)

func (s *slot) rank() int {
	if s.healthy() {
		return rankHealthy
	}
	t := s.newest()
	switch {
	case t == nil:
		return rankRestartable
	case s.failing() || s.live() && t.unreachable():
		return rankFailing
	case !s.live():
		return rankRestartable
	case lifecycle.Shown(t.Attempt).State == cluster.StateRunning:
		return rankRunning
	}
	return rankStarting
}

// dismissal says whether the budget grants the end of a task, and whether the rollout that began the task has failed.
type dismissal struct{ granted, failed bool }

// endUnwanted ends a task that the service does not want, if the budget grants it or the stop is mandatory. It returns
// 1 if the task continues for now.
func (p *plan) endUnwanted(s *slot, in *ServiceInput, how dismissal) (waits int) {
	spec := in.Spec
	stop := cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonScaleDown}
	switch {
	case spec == nil || spec.Deleted:
		stop.Class, stop.Reason, stop.Message = cluster.StopMandatory, cluster.ReasonDeleted, "the service was deleted"
	case spec.Stopped:
		stop.Class, stop.Reason, stop.Message = cluster.StopMandatory, cluster.ReasonDeleted, "the service was stopped"
	case !in.newest(s) && in.wantsTasks():
		stop.Reason = cluster.ReasonRollout
		stop.Message = fmt.Sprintf("replaced by %s", spec.Definition)
	default:
		stop.Message = fmt.Sprintf("count is %d", spec.Count)
	}
	if out, ok := in.stopOffNode(s); ok && stop.Class == cluster.StopVoluntary {
		stop = out
	}
	if how.failed && in.newest(s) && s.parts.Index < spec.Count {
		stop.Reason, stop.Message = cluster.ReasonRollout,
			fmt.Sprintf("rollout of %s failed", spec.Definition)
	}
	if stop.Class == cluster.StopVoluntary && !how.granted {
		if t := s.newest(); t != nil && t.live() && !t.stopped() {
			p.noteDelayedStop(t,
				fmt.Sprintf("%s keeps running: %s", s.id, p.budget.text(p.budget.least)))
		}
		return 1
	}
	p.stopLive(s, stop)
	p.stopEnded(s, &stop)
	keep := 0
	switch {
	case spec == nil || spec.Deleted:
	case in.newest(s):
		keep = p.policy.keptOutcomes()
	case s.parts.Generation == spec.Rollout.Reverted, p.liveGenerations[s.parts.Generation], in.wasHealthy(s):
		// A failed version is kept for inspection. Tasks of the others may begin again, and must not reuse attempt
		// numbers.
		keep = 1
	}
	endings{p}.trim(s, keep)
	return 0
}

// wasHealthy reports whether the task is of the last healthy version, whose tasks may be begun again.
func (in *ServiceInput) wasHealthy(s *slot) bool {
	return in.Rollout != nil && in.Rollout.Healthy != nil && s.parts.Generation == in.Rollout.Healthy.Generation
}

// remove requests the removal of a deleted owner's record once no record of any task is left. Until then the record
// keeps the generation, so that a new owner of the same name cannot reuse a task id.
func (p *plan) remove(deleted bool, all []*slot) {
	for _, s := range all {
		if len(s.attempts) > 0 {
			return
		}
	}
	p.Remove = deleted
}

// requestedAt returns when the user wrote the service.
func requestedAt(life cluster.Lifespan) time.Time {
	if life.Updated.IsZero() {
		return life.Created
	}
	return life.Updated
}

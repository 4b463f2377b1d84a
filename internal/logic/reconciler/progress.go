package reconciler

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
)

// track brings the record of the rollout up to date: where it stands, whether it is complete or has failed, and what
// follows. It writes only where something changed.
func (r *rollout) track() {
	started := r.start()
	state, most := r.rec.State, r.rec.Most
	if r.healthy > r.rec.Most && !r.rec.State.Ended() {
		r.rec.Most, r.rec.Changed, r.rec.Message = r.healthy, r.now, ""
	}
	proven := false
	if r.healthy >= r.n && !r.rec.State.Ended() && r.canaries() == 0 && r.judged() &&
		(r.rec.Healthy == nil || r.rec.Healthy.Generation != r.rec.Generation) {
		v := r.rec.Version
		r.rec.Healthy, proven = &v, true // also if another version is asked for before the last old task has ended
	}
	switch {
	case state == cluster.RolloutComplete || state == cluster.RolloutRolledBack || state == cluster.RolloutSuperseded:
	case r.healthy >= r.n && r.oldLive == 0 && r.canaries() == 0 && r.judged() &&
		(state != cluster.RolloutFailed || len(r.old) == 0):
		r.complete(started)
	case state == cluster.RolloutFailed || r.spec.Rollout.Paused:
	default:
		if code, message := r.fault(); code != "" {
			r.fail(code, message)
		} else {
			r.promote()
		}
	}
	if started && r.Rollout == nil && r.rec.State == cluster.RolloutRolling {
		r.tell("service.rollout-started", "", fmt.Sprintf("generation %d runs %s", r.rec.Generation, r.rec.Definition))
	}
	if started || proven || r.rec.State != state || r.rec.Most != most || r.in.Rollout.Promoted != r.rec.Promoted {
		r.record()
	}
}

// record makes the decision write the record.
func (r *rollout) record() *RolloutWrite {
	if r.Rollout == nil {
		r.Rollout = &RolloutWrite{Rev: r.in.RolloutRev, SpecRev: r.in.SpecRev}
	}
	r.Rollout.Record = r.rec
	return r.Rollout
}

func (r *rollout) tell(kind string, code cluster.ReasonCode, message string) {
	owner := r.owner
	w := r.record()
	w.Events = append(w.Events,
		cluster.Event{Type: kind, Cluster: owner.Cluster, Owner: &owner, Reason: code, Message: message, Count: r.n})
}

// start takes the record over, or makes that of a new generation, and reports whether it did.
func (r *rollout) start() bool {
	old := r.in.Rollout
	if old != nil && old.Generation == r.spec.Generation {
		r.rec = *old
		return false
	}
	r.first = old == nil
	r.rec = cluster.Rollout{
		Version: cluster.Version{
			Generation: r.spec.Generation, Definition: r.spec.Definition, State: cluster.RolloutRolling, Started: r.now,
		},
		Changed: r.now, Most: r.healthy,
	}
	if old == nil {
		return true
	}
	last := old.Version
	if !last.State.Ended() {
		last.State, last.Ended = cluster.RolloutSuperseded, r.now
		last.Message = fmt.Sprintf("generation %d was asked for before it ended", r.spec.Generation)
	}
	r.rec.Healthy = old.Healthy
	r.rec.History = slices.Concat([]cluster.Version{last}, old.History)
	r.rec.History = r.rec.History[:min(len(r.rec.History), cluster.MaxVersions)]
	return true
}

func (r *rollout) end(state cluster.RolloutState, message string) {
	r.rec.State, r.rec.Ended, r.rec.Changed, r.rec.Message = state, r.now, r.now, message
}

// complete ends the rollout well. Of a service that is seen for the first time, as it stands, nothing is told.
func (r *rollout) complete(started bool) {
	r.end(cluster.RolloutComplete, fmt.Sprintf("%s healthy", tasksAre(r.n, "is", "are")))
	r.rec.Most = max(r.rec.Most, r.healthy)
	v := r.rec.Version
	r.rec.Healthy = &v
	if !started || !r.first {
		r.tell("service.rollout-complete", "",
			fmt.Sprintf("generation %d runs %s: %s", v.Generation, v.Definition, v.Message))
	}
}

// fail ends the rollout badly, and goes back to the last version that was healthy where there is one and it is wanted.
// A rollout that goes back does not go back any further.
func (r *rollout) fail(code cluster.ReasonCode, message string) {
	back := r.rec.Healthy
	r.rec.Reason = code
	r.end(cluster.RolloutFailed, message)
	r.tell("service.rollout-failed", code,
		fmt.Sprintf("generation %d with %s: %s", r.rec.Generation, r.rec.Definition, message))
	if !r.spec.Update.RollsBack() || back == nil || back.Definition == r.rec.Definition ||
		r.spec.Rollout.Reverted != 0 ||
		r.definitions(back.Definition) == nil {
		return
	}
	r.end(cluster.RolloutRolledBack, fmt.Sprintf("%s; back to %s", message, back.Definition))
	r.Revert = &Revert{Definition: back.Definition, Failed: r.rec.Generation, SpecRev: r.in.SpecRev}
	r.tell("service.rolled-back", code,
		fmt.Sprintf("generation %d with %s failed and %s is asked for again: %s", r.rec.Generation, r.rec.Definition,
			back.Definition, message))
}

// promote goes on from the canaries.
func (r *rollout) promote() {
	c := min(r.canaries(), r.n)
	asked := r.spec.Rollout.Promoted == r.rec.Generation
	switch {
	case c == 0 && r.rec.State == cluster.RolloutCanary:
		r.rec.State, r.rec.Changed = cluster.RolloutRolling, r.now
	case c == 0:
	case asked:
		r.promoted("somebody promoted the canaries")
	case r.rec.State == cluster.RolloutCanary && r.spec.Update.AutoPromote && r.healthy >= c && r.passes():
		r.promoted(fmt.Sprintf("%s healthy%s", canariesAre(c), r.andGates()))
	case r.rec.State == cluster.RolloutRolling && r.healthy >= c:
		r.rec.State, r.rec.Changed = cluster.RolloutCanary, r.now
		r.tell("service.canary-healthy", "", fmt.Sprintf("%s of %s healthy", canariesAre(c), r.rec.Definition))
		if r.spec.Update.AutoPromote {
			r.look(r.now)
		}
	}
}

func (r *rollout) promoted(message string) {
	r.rec.Promoted, r.rec.State, r.rec.Changed = true, cluster.RolloutRolling, r.now
	r.tell("service.promoted", "", fmt.Sprintf("generation %d: %s", r.rec.Generation, message))
}

func canariesAre(n int) string {
	if n == 1 {
		return "1 canary is"
	}
	return fmt.Sprintf("%d canaries are", n)
}

// fault says why the rollout has failed, if it has.
func (r *rollout) fault() (cluster.ReasonCode, string) {
	if r.healthy >= r.n && r.canaries() == 0 && r.judged() {
		return "", "" // all that is left is the end of old tasks
	}
	for _, s := range r.all {
		if !r.in.newest(s) {
			continue
		}
		for _, t := range s.attempts {
			if o := t.Outcome; o != nil && r.mine(t) && ownFault(o) {
				return cmp.Or(o.Reason, cluster.ReasonExit),
					fmt.Sprintf("attempt %d of %s %s on node %s%s", t.number(), s.id, ended(o.State), t.node(),
						because(o.Message))
			}
		}
	}
	if g := r.failedGate(); g != nil {
		return cluster.ReasonGate,
			fmt.Sprintf("gate %s did not pass %s in a row%s", g.Name, times(g.Failures), because(g.Message))
	}
	if message := r.overdue(); message != "" {
		return cluster.ReasonDeadline, message
	}
	return r.stuck()
}

// mine reports whether the attempt was begun for this rollout.
func (r *rollout) mine(t *Task) bool {
	parts, _ := t.id().Parts()
	if parts.Generation == r.spec.Generation {
		return true
	}
	o := t.Outcome
	return o != nil && !o.Placed.IsZero() && !o.Placed.Before(r.rec.Started)
}

// ownFault reports whether an attempt ended for good by what it did itself.
func ownFault(o *cluster.Outcome) bool {
	if !failure(o) {
		return false
	}
	switch o.Reason {
	case cluster.ReasonExit, cluster.ReasonOOM, cluster.ReasonRestartLimit, cluster.ReasonUnhealthy:
		return o.State == cluster.StateFailed || o.State == cluster.StateSucceeded
	default:
		return o.State == cluster.StateSucceeded
	}
}

// overdue names a task that did not become healthy in time. A task that was healthy before and is not now is none:
// since of those begun Most were healthy at the same time, only so many as are more than that never were, the last ones
// begun.
func (r *rollout) overdue() string {
	var late []*slot
	for _, s := range r.fresh {
		if s.begun() == 1 && !s.healthy() {
			late = append(late, s)
		}
	}
	slices.SortStableFunc(late, func(a, b *slot) int { return b.placed().Compare(a.placed()) })
	limit := time.Duration(cmp.Or(r.spec.Update.HealthyDeadline, cluster.DefaultHealthyDeadline))
	for _, s := range late[:max(0, min(len(late), r.begun-r.rec.Most))] {
		t := s.newest()
		if !t.live() || t.stopped() || t.Absence != watcher.Present || t.Desired == nil || t.Desired.Placed.IsZero() {
			continue
		}
		begun := later(t.Desired.Placed, r.spec.Updated, r.rec.Started, r.in.Since)
		if r.rec.Message == awayMessage {
			begun = later(begun, r.rec.Changed)
		}
		end := begun.Add(limit)
		if end.After(r.now) {
			r.look(end)
			continue
		}
		return fmt.Sprintf("%s was not healthy within %s of its placing%s", s.id, cluster.Duration(limit),
			because(s.trouble()))
	}
	return ""
}

// placed returns when the first attempt that is known of the task was placed.
func (s *slot) placed() time.Time {
	for _, t := range s.attempts {
		switch {
		case t.Desired != nil && !t.Desired.Placed.IsZero():
			return t.Desired.Placed
		case t.Outcome != nil && !t.Outcome.Placed.IsZero():
			return t.Outcome.Placed
		}
	}
	return time.Time{}
}

// stuck says that the rollout made no progress for too long. Canaries that wait for somebody to promote them may wait.
func (r *rollout) stuck() (cluster.ReasonCode, string) {
	if r.rec.State == cluster.RolloutCanary && !r.spec.Update.AutoPromote {
		return "", ""
	}
	limit := time.Duration(cmp.Or(r.spec.Update.ProgressDeadline, cluster.DefaultProgressDeadline))
	since := later(r.rec.Changed, r.spec.Updated, r.in.Since)
	if r.stalled() {
		// Written anew now and then, so that enough of both deadlines is left once the nodes are heard again.
		half := min(limit, time.Duration(cmp.Or(r.spec.Update.HealthyDeadline, cluster.DefaultHealthyDeadline))) / 2
		if at := since.Add(half); at.After(r.now) {
			r.look(at)
		} else {
			r.rec.Changed, r.rec.Message = r.now, awayMessage
			r.record()
			r.look(r.now.Add(half))
		}
		return "", ""
	}
	end := since.Add(limit + time.Duration(r.spec.Update.Stagger))
	if end.After(r.now) {
		r.look(end)
		return "", ""
	}
	return cluster.ReasonDeadline,
		fmt.Sprintf("no further task became healthy for %s: %d of %s", cluster.Duration(limit), r.healthy,
			tasksAre(r.n, "is", "are"))
}

// awayMessage is the message of a rollout that cannot go on for the silence of nodes: its deadlines count from
// Rollout.Changed.
const awayMessage = "its tasks are on nodes that are silent"

// stalled reports whether nothing but tasks on nodes that are away keeps the rollout from going on: that is no fault of
// its version.
func (r *rollout) stalled() bool {
	away := 0
	for _, s := range r.fresh {
		if s.begun() == 0 || s.healthy() {
			continue
		}
		if !s.live() || s.newest().Absence == watcher.Present {
			return false
		}
		away++
	}
	c, most := r.canaries(), min(r.limits.Parallelism, r.n-r.healthy)
	return away > 0 && (away >= most || c > 0 && r.begun >= c || !r.goesOn())
}

func later(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

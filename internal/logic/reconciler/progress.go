package reconciler

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
)

// progress keeps the record of a rollout: it begins, continues, completes or fails by the tasks and the clock.
type progress struct{ *rollout }

// updateRecord updates the record of the rollout: its state, whether it is complete or failed, and what follows. It
// writes only changes.
func (r progress) updateRecord() {
	started := r.takeRecord()
	state, most := r.rec.State, r.rec.Most
	if r.healthy > r.rec.Most && !r.rec.State.Ended() {
		r.rec.Most, r.rec.Changed, r.rec.Message = r.healthy, r.now, ""
	}
	proven := false
	reconnects := !r.rec.State.Ended() && slices.ContainsFunc(r.fresh, (*slot).mayReconnect)
	if reconnects { // the time of the silence does not count
		r.rec.Changed, r.rec.Message = r.now, silentNodesMessage
	}
	if r.healthy >= r.n && !r.rec.State.Ended() && r.canaries() == 0 && r.gatesSatisfied() &&
		(r.rec.Healthy == nil || r.rec.Healthy.Generation != r.rec.Generation) {
		v := r.rec.Version
		r.rec.Healthy, proven = &v, true // even if another version replaces it early
	}
	switch {
	case state == cluster.RolloutComplete || state == cluster.RolloutRolledBack || state == cluster.RolloutSuperseded:
	case r.healthy >= r.n && r.oldLive == 0 && r.canaries() == 0 && r.gatesSatisfied() &&
		(state != cluster.RolloutFailed || len(r.old) == 0):
		r.complete(started)
	case state == cluster.RolloutFailed || r.spec.Rollout.Paused:
	default:
		if code, message := r.failureReason(); code != "" {
			r.fail(code, message)
		} else {
			r.promote()
		}
	}
	if started && r.Rollout == nil && r.rec.State == cluster.RolloutRolling {
		r.report("service.rollout-started", "", r.activity())
	}
	if started || proven || reconnects || r.rec.State != state || r.rec.Most != most ||
		r.in.Rollout.Promoted != r.rec.Promoted {
		r.writeRecord()
	}
}

// writeRecord adds the record to the decision.
func (r progress) writeRecord() *RolloutWrite {
	if r.Rollout == nil {
		r.Rollout = &RolloutWrite{Rev: r.in.RolloutRev, SpecRev: r.in.SpecRev}
	}
	r.Rollout.Record = r.rec
	return r.Rollout
}

func (r progress) report(kind string, code cluster.ReasonCode, message string) {
	owner := r.owner
	w := r.writeRecord()
	w.Events = append(w.Events,
		cluster.Event{Type: kind, Cluster: owner.Cluster, Owner: &owner, Reason: code, Message: message, Count: r.n})
}

// takeRecord takes over the existing record, or makes that of a new generation and reports true.
func (r progress) takeRecord() bool {
	old := r.in.Rollout
	if old != nil && old.Generation == r.spec.Generation {
		r.rec = *old
		return false
	}
	r.unknownBefore = old == nil
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
		last.Message = fmt.Sprintf("replaced by generation %d", r.spec.Generation)
	}
	r.rec.Healthy = old.Healthy
	r.rec.History = slices.Concat([]cluster.Version{last}, old.History)
	r.rec.History = r.rec.History[:min(len(r.rec.History), cluster.MaxVersions)]
	return true
}

func (r progress) end(state cluster.RolloutState, message string) {
	r.rec.State, r.rec.Ended, r.rec.Changed, r.rec.Message = state, r.now, r.now, message
}

// complete ends the rollout with success. It reports no event for a service that is complete when it is first seen.
func (r progress) complete(started bool) {
	r.end(cluster.RolloutComplete, fmt.Sprintf("%d/%d healthy", r.n, r.n))
	r.rec.Most = max(r.rec.Most, r.healthy)
	v := r.rec.Version
	r.rec.Healthy = &v
	if !started || !r.unknownBefore {
		r.report("service.rollout-complete", "",
			fmt.Sprintf("%s is complete: %s", rolloutText(r.spec, r.rec.Definition), v.Message))
	}
}

// rollbackTarget returns the last healthy version if the policy goes back to it, or nil. A rollback does not go back
// any further.
func (r progress) rollbackTarget() *cluster.Version {
	back := r.rec.Healthy
	if !r.spec.Update.RollsBack() || back == nil || back.Definition == r.rec.Definition ||
		r.spec.Rollout.Reverted != 0 ||
		r.definitions(back.Definition) == nil {
		return nil
	}
	return back
}

// fail ends the rollout as failed. It goes back to the target of the rollback, unless that version needs a permission
// that the cluster no longer has.
func (r progress) fail(code cluster.ReasonCode, message string) {
	back := r.rollbackTarget()
	if back != nil {
		if lack := r.in.Cluster.LackOf(r.definitions(back.Definition)); lack != "" {
			message, back = message+"; no rollback: "+lack, nil
		}
	}
	r.rec.Reason = code
	r.end(cluster.RolloutFailed, message)
	r.report("service.rollout-failed", code,
		fmt.Sprintf("%s failed: %s", rolloutText(r.spec, r.rec.Definition), message))
	if back == nil {
		return
	}
	r.end(cluster.RolloutRolledBack, fmt.Sprintf("%s; rolled back to %s", message, back.Definition))
	r.Revert = &Revert{Definition: back.Definition, Failed: r.rec.Generation, SpecRev: r.in.SpecRev}
	r.report("service.rolled-back", code,
		fmt.Sprintf("rollout of %s failed; rolled back to %s: %s", r.rec.Definition, back.Definition, message))
}

// promote continues from the canaries once a user, or the policy, promotes them.
func (r progress) promote() {
	c := min(r.canaries(), r.n)
	asked := r.spec.Rollout.Promoted == r.rec.Generation
	switch {
	case c == 0 && r.rec.State == cluster.RolloutCanary:
		r.rec.State, r.rec.Changed = cluster.RolloutRolling, r.now
	case c == 0:
	case asked:
		r.promoted("promoted by a user")
	case r.rec.State == cluster.RolloutCanary && r.spec.Update.AutoPromote && r.healthy >= c && r.gatesPassed():
		r.promoted(fmt.Sprintf("promoted: %s healthy%s", countedCanaries(c), r.andGates()))
	case r.rec.State == cluster.RolloutRolling && r.healthy >= c:
		r.rec.State, r.rec.Changed = cluster.RolloutCanary, r.now
		r.report("service.canary-healthy", "", fmt.Sprintf("%s: %s healthy", r.rec.Definition, countedCanaries(c)))
		if r.spec.Update.AutoPromote {
			r.decideAgainAt(r.now)
		}
	}
}

func (r progress) promoted(message string) {
	r.rec.Promoted, r.rec.State, r.rec.Changed = true, cluster.RolloutRolling, r.now
	r.report("service.promoted", "", fmt.Sprintf("%s: %s", r.rec.Definition, message))
}

func countedCanaries(n int) string {
	if n == 1 {
		return "1 canary"
	}
	return fmt.Sprintf("%d canaries", n)
}

// failureReason returns why the rollout has failed, if it has.
func (r progress) failureReason() (cluster.ReasonCode, string) {
	if r.healthy >= r.n && r.canaries() == 0 && r.gatesSatisfied() {
		return "", "" // only old tasks have yet to end
	}
	for _, s := range r.all {
		if !r.in.newest(s) {
			continue
		}
		for _, t := range s.attempts {
			if o := t.Outcome; o != nil && r.isOfRollout(t) && failedByItself(o) {
				return cmp.Or(o.Reason, cluster.ReasonExit),
					fmt.Sprintf("%s %s on %s%s%s", s.id, ended(o.State), t.node(), laterAttempt(t), because(o.Message))
			}
		}
	}
	if g := r.failedGate(); g != nil {
		return cluster.ReasonGate,
			fmt.Sprintf("gate %s failed %s in a row%s", g.Name, times(g.Failures), because(g.Message))
	}
	if message := r.overdue(); message != "" {
		return cluster.ReasonDeadline, message
	}
	return r.progressFailure()
}

// isOfRollout reports whether the attempt was begun for this rollout.
func (r progress) isOfRollout(t *Task) bool {
	parts, _ := t.id().Parts()
	if parts.Generation == r.spec.Generation {
		return true
	}
	o := t.Outcome
	return o != nil && !o.Placed.IsZero() && !o.Placed.Before(r.rec.Started)
}

// failedByItself reports whether an attempt failed by its own fault.
func failedByItself(o *cluster.Outcome) bool {
	if !isFailure(o) {
		return false
	}
	switch o.Reason {
	case cluster.ReasonExit, cluster.ReasonOOM, cluster.ReasonRestartLimit, cluster.ReasonUnhealthy,
		cluster.ReasonNoProgram:
		return o.State == cluster.StateFailed || o.State == cluster.StateSucceeded
	default:
		return o.State == cluster.StateSucceeded
	}
}

// overdue describes a task that did not become healthy in time. Tasks that were healthy before do not count. Most of
// the begun tasks were healthy at one time, so only the begun tasks beyond Most never were: the last ones begun.
func (r progress) overdue() string {
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
		if r.rec.Message == silentNodesMessage {
			begun = later(begun, r.rec.Changed)
		}
		end := begun.Add(limit)
		if end.After(r.now) {
			r.decideAgainAt(end)
			continue
		}
		why := strings.TrimLeft(strings.TrimPrefix(s.trouble(), string(s.id)), ": ")
		return fmt.Sprintf("%s did not become healthy within %s (healthy_deadline)%s", s.id, cluster.Duration(limit),
			because(why))
	}
	return ""
}

// placed returns when the task's first known attempt was placed.
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

// progressFailure reports that the rollout made no progress for too long. Canaries may wait for their promotion without
// a limit.
func (r progress) progressFailure() (cluster.ReasonCode, string) {
	if r.rec.State == cluster.RolloutCanary && !r.spec.Update.AutoPromote {
		return "", ""
	}
	limit := time.Duration(cmp.Or(r.spec.Update.ProgressDeadline, cluster.DefaultProgressDeadline))
	since := later(r.rec.Changed, r.spec.Updated, r.in.Since)
	if r.waitsForNodes() {
		// The record is renewed now and then, so that enough of both deadlines is left once the nodes report again.
		half := min(limit, time.Duration(cmp.Or(r.spec.Update.HealthyDeadline, cluster.DefaultHealthyDeadline))) / 2
		if at := since.Add(half); at.After(r.now) {
			r.decideAgainAt(at)
		} else {
			r.rec.Changed, r.rec.Message = r.now, silentNodesMessage
			r.writeRecord()
			r.decideAgainAt(r.now.Add(half))
		}
		return "", ""
	}
	end := since.Add(limit + time.Duration(r.spec.Update.Stagger))
	if end.After(r.now) {
		r.decideAgainAt(end)
		return "", ""
	}
	return cluster.ReasonDeadline,
		fmt.Sprintf("no progress within %s (progress_deadline): %d/%d healthy", cluster.Duration(limit), r.healthy, r.n)
}

// silentNodesMessage is the message of a rollout that silent nodes hold up. Its deadlines count from Rollout.Changed.
const silentNodesMessage = "waiting for silent nodes"

// waitsForNodes reports whether only tasks on unreachable nodes hold up the rollout: its version is not at fault.
func (r progress) waitsForNodes() bool {
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
	return away > 0 && (away >= most || c > 0 && r.begun >= c || !r.batchMayBegin())
}

func later(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

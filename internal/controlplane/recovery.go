package controlplane

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// sentry finds out whether the store went back behind Berth's back (P1.7): an agent has seen a token above the store's
// own. Then, and after a restore, the leader commits nothing but verdicts on nodes and the alarm, until the operator
// has said how to go on. That decision begins another epoch, so a sentry that was alarmed stays so.
type sentry struct {
	config Config
	fence  *store.Fence
	shared *alarms
	alarm  *cluster.Recovery
	plan   uint64 // the highest that placed what agents run
}

// alarms is the alarm of a reign, which its sentries share: the evidence may be gone from the tables when the second of
// them looks, as the number of a plan that was lost is given again, and then one of them would stand still while the
// other goes on.
type alarms struct {
	mu    sync.Mutex
	given *cluster.Recovery
}

// merge takes a sentry's own alarm, or none, and returns the one for the highest token that any gave.
func (a *alarms) merge(own *cluster.Recovery) *cluster.Recovery {
	if a == nil {
		return own
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if own != nil && (a.given == nil || own.Shown.Compare(a.given.Shown) > 0) {
		a.given = own
	}
	return a.given
}

// look takes note of the nodes that changed and reports whether the leader is held back.
func (s *sentry) look(snap *store.Snapshot, c store.Changes, now time.Time) bool {
	if s.config.Without.Off(clause.Incarnation) {
		return false
	}
	recovery, recovered := snap.Recovery(s.config.Domain)
	if recovered && recovery.Value.State == cluster.RecoveryNeeded {
		s.count(snap, c, now, recovery.Value)
		return true
	}
	if c.Resync {
		for e := range snap.NodeStatuses() {
			s.hear(snap, e.Value, recovered, now)
		}
	}
	s.count(snap, c, now, recovery.Value)
	for name := range c.Nodes { // order-free: the highest is kept
		if e, ok := snap.NodeStatus(name); ok {
			s.hear(snap, e.Value, recovered, now)
		}
	}
	s.alarm = s.shared.merge(s.alarm)
	return s.alarm != nil
}

// hear compares the token that a node showed with its own. A node that the store does not know and that has seen
// another incarnation comes from another store: that says nothing of this one, and the watcher claims it above what it
// knew.
func (s *sentry) hear(snap *store.Snapshot, status *cluster.NodeStatus, recovered bool, now time.Time) {
	shown := status.Token
	own := cluster.Token{Generation: shown.Generation, Incarnation: s.fence.Incarnation, Epoch: s.fence.Epoch}
	if node, ok := snap.Node(status.Name); ok {
		if node.Value.Domain != s.config.Domain {
			return
		}
		own.Generation = node.Value.Generation
		if host, ok := snap.Host(status.Name); ok {
			own.Generation = max(own.Generation, host.Value.Generation)
		}
		if recovered {
			own.Generation = max(own.Generation, shown.Generation)
		}
	} else if shown.Incarnation != s.fence.Incarnation {
		return
	}
	if shown.Compare(own) > 0 {
		s.raise(shown, now, fmt.Sprintf("the store lost writes: node %s has seen %s, and the store is at %s",
			status.Name, text(shown), text(own)))
	}
}

// count looks for attempts that a plan placed which the store does not have: its newest plan is never deleted. That
// tells where the store went back within one reign, so that the tokens do not. What is known to be of an earlier loss
// is left to the decision on that one, which former is, unless it is nil.
func (s *sentry) count(snap *store.Snapshot, c store.Changes, now time.Time, former *cluster.Recovery) {
	last := snap.LastPlan()
	look := func(row *store.AttemptRow) {
		o := row.Observed
		if o == nil {
			return
		}
		s.plan = max(s.plan, o.Plan)
		if o.Plan <= last || row.Desired != nil || row.Outcome != nil || former != nil && lostBefore(o, former) {
			return
		}
		if status, ok := snap.NodeStatus(row.Node); !ok || status.Value.Token.Incarnation != s.fence.Incarnation {
			return // it comes from another store
		}
		own := cluster.Token{Incarnation: s.fence.Incarnation, Epoch: s.fence.Epoch}
		s.raise(own, now, fmt.Sprintf(
			"the store lost writes: node %s runs %s, which plan %d placed, and the store's last plan is %d",
			row.Node, row.Task, o.Plan, last))
	}
	if c.Resync {
		for row := range snap.AllAttempts() {
			look(row)
		}
		return
	}
	for key := range c.Attempts { // order-free: one suffices
		if row, ok := snap.Attempt(key.Task, key.Number); ok {
			look(row)
		}
	}
}

// lostBefore reports whether an attempt that the store does not know is of what it lost at an earlier time: nothing is
// placed between the loss and the decision. One that has not begun is told by its plan, whose number may have been
// given again since; it is looked at again once it begins.
func lostBefore(o *cluster.Observed, former *cluster.Recovery) bool {
	if former.State == cluster.RecoveryNeeded {
		return true
	}
	if o.Started.IsZero() {
		return o.Plan <= former.Plan
	}
	return !o.Started.After(former.Decided)
}

// raise gives the alarm, unless one for a token as high was given.
func (s *sentry) raise(shown cluster.Token, now time.Time, cause string) {
	since := now.UTC()
	if s.alarm != nil {
		if shown.Compare(s.alarm.Shown) <= 0 {
			return
		}
		since = s.alarm.Since
	}
	s.alarm = &cluster.Recovery{State: cluster.RecoveryNeeded, Shown: shown, Since: since, Cause: cause}
}

func text(t cluster.Token) string {
	return fmt.Sprintf("incarnation %d, epoch %d, generation %d", t.Incarnation, t.Epoch, t.Generation)
}

// heldSentence is why all tasks wait.
const heldSentence = "nothing is placed or stopped: the store went back to an earlier state, and the " +
	"operator decides how to go on (berth operator recover)"

// hold commits what a leader that is held back may: the alarm, and verdicts on nodes that neither let go of one nor
// take it from anybody (watcher.Input.Held).
func (l *loop) hold(ctx context.Context, snap *store.Snapshot, nodes judged) error {
	if l.deposed(snap) {
		return store.ErrFenced
	}
	l.plane.reasons.hold(heldSentence)
	units := nodes.units
	if u, ok := l.alarm(snap); ok {
		units = append(units, u)
	}
	return l.commit(ctx, units)
}

// deposed reports whether the tables show that another leader took over: what agents have seen of that one is no alarm.
func (l *loop) deposed(snap *store.Snapshot) bool {
	leader, ok := snap.Leader(l.config.Domain)
	return !ok || leader.Modified != l.fence.Modified
}

// alarm writes that a decision of the operator is needed, unless that is written, and the highest plan that was seen.
func (l *loop) alarm(snap *store.Snapshot) (store.Unit, bool) {
	var u store.Unit
	var next cluster.Recovery
	alarm := l.sentry.alarm
	key := l.config.Tables.Prefix().Recovery(l.config.Domain)
	e, ok := snap.Recovery(l.config.Domain)
	if ok && e.Value.State == cluster.RecoveryNeeded && (alarm == nil || e.Value.Shown.Compare(alarm.Shown) >= 0) {
		if next, alarm = *e.Value, nil; next.Plan >= l.sentry.plan {
			return u, false
		}
	} else if alarm != nil {
		next = *alarm
	} else {
		return u, false
	}
	next.Plan = max(next.Plan, l.sentry.plan)
	u.Compare(key, e.Modified)
	if err := u.Put(key, &next); err != nil {
		l.config.Logger.Error("the alarm cannot be written", "error", err)
		return u, false
	}
	if alarm == nil { // it was told
		return u, true
	}
	u.Event(cluster.Event{Type: "recovery.needed", Reason: cluster.ReasonRecovery, Message: alarm.Cause})
	l.config.Logger.Error("the store went back; the operator decides how to go on", "cause", alarm.Cause)
	return u, true
}

// recovery is what decisions have to know of an earlier recovery.
func (l *loop) recovery(snap *store.Snapshot) reconciler.Recovery {
	e, _ := snap.Recovery(l.config.Domain)
	return reconciler.RecoveryOf(l.fence.Incarnation, e.Value)
}

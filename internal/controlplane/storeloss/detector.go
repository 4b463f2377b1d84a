// Package storeloss finds out whether the store lost writes without Berth's knowledge (P1.7).
package storeloss

import (
	"fmt"
	"sync"
	"time"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Detector finds out whether the store lost writes without Berth's knowledge (P1.7): an agent has seen a token above
// the store's own, or a plan that the store does not have, or the store went back under this server. Then, and after a
// restore, the leader commits nothing but verdicts on nodes and the alarm, until the operator has decided how to
// continue. The decision begins another epoch, so the alarm of a detector is never cleared.
type Detector struct {
	domain string
	number uint64 // the domain's number
	// without switches clauses off, in proofs only.
	without     clause.Set
	fence       *store.Fence
	shared      *sharedAlarm
	alarm       *cluster.Recovery
	highestPlan uint64 // the highest plan number of an attempt that an agent runs
}

// New returns a detector for the term with the fence, in the domain with the number. Off clauses are for proofs only.
func New(domain string, number uint64, fence *store.Fence, without clause.Set) *Detector {
	return &Detector{domain: domain, number: number, without: without, fence: fence, shared: new(sharedAlarm)}
}

// Twin returns another detector of the same term. Both give the alarm once one of them has the evidence.
func (s *Detector) Twin() *Detector {
	return &Detector{domain: s.domain, number: s.number, without: s.without, fence: s.fence, shared: s.shared}
}

// AlarmUnit records that the operator has to decide, unless that is recorded, and the highest plan that was seen. It
// returns false if there is nothing to record, and the alarm if it is new.
func (s *Detector) AlarmUnit(snap *store.Snapshot, p store.Prefix) (u store.Unit, alarm *cluster.Recovery,
	some bool, err error,
) {
	var next cluster.Recovery
	e, ok := snap.Recovery(s.domain)
	switch {
	case ok && e.Value.State == cluster.RecoveryNeeded &&
		(s.alarm == nil || e.Value.Shown.Compare(s.alarm.Shown) >= 0):
		if next = *e.Value; next.Plan >= s.highestPlan {
			return u, nil, false, nil
		}
	case s.alarm != nil:
		next, alarm = *s.alarm, s.alarm
	default:
		return u, nil, false, nil
	}
	next.Plan = max(next.Plan, s.highestPlan)
	key := p.Recovery(s.domain)
	u.Compare(key, e.Modified)
	if err := u.Put(key, &next); err != nil {
		return u, nil, false, err
	}
	if alarm != nil { // else its event was written before
		u.Event(cluster.Event{Type: "recovery.needed", Reason: cluster.ReasonRecovery, Message: alarm.Cause})
	}
	return u, alarm, true, nil
}

// FullReports returns, after the store went back under this server, units that end the sessions of the domain's nodes
// (P6.1). The store may have lost reports that were acknowledged. The agents register again and report everything, and
// until then nothing is placed on the nodes.
func (s *Detector) FullReports(snap *store.Snapshot) (units []store.Unit, err error) {
	if snap.WentBack() == 0 {
		return nil, nil
	}
	for e := range snap.NodeStatuses() {
		node, ok := snap.Node(e.Value.Name)
		if !ok || node.Value.Domain != s.domain || !e.Value.Synced {
			continue
		}
		next := *e.Value
		next.Session, next.Synced = next.Session+1, false
		var u store.Unit
		u.Compare(e.Key, e.Modified)
		if err := u.Put(e.Key, &next); err != nil {
			return nil, err
		}
		units = append(units, u)
	}
	return units, nil
}

// sharedAlarm is the alarm that the detectors of a term share. The evidence may be gone from the tables when the second
// detector reads, because the number of a lost plan is used again. Without sharing, one of them would stop while the
// other continues.
type sharedAlarm struct {
	mu      sync.Mutex
	highest *cluster.Recovery
}

// merge adds a detector's own alarm, which may be nil, and returns the alarm with the highest token.
func (a *sharedAlarm) merge(own *cluster.Recovery) *cluster.Recovery {
	a.mu.Lock()
	defer a.mu.Unlock()
	if own != nil && (a.highest == nil || own.Shown.Compare(a.highest.Shown) > 0) {
		a.highest = own
	}
	return a.highest
}

// Check examines the nodes that changed and reports whether the leader is held back.
func (s *Detector) Check(snap *store.Snapshot, c store.Changes, now time.Time) bool {
	if s.without.Off(clause.Incarnation) {
		return false
	}
	recovery, recovered := snap.Recovery(s.domain)
	if recovered && recovery.Value.State == cluster.RecoveryNeeded {
		s.checkPlans(snap, c, now, recovery.Value)
		return true
	}
	s.checkRevision(snap, recovery, now)
	if c.Resync {
		for e := range snap.NodeStatuses() {
			s.checkToken(snap, e.Value, recovered, now)
		}
	}
	s.checkPlans(snap, c, now, recovery.Value)
	for name := range c.Nodes { // order-free: the highest is kept
		if e, ok := snap.NodeStatus(name); ok {
			s.checkToken(snap, e.Value, recovered, now)
		}
	}
	s.alarm = s.shared.merge(s.alarm)
	return s.alarm != nil
}

// checkRevision checks whether the store went back under the tables of this server. A recovery that was recorded later
// covers that.
func (s *Detector) checkRevision(snap *store.Snapshot, recovery store.Entry[cluster.Recovery], now time.Time) {
	at := snap.WentBack()
	if at == 0 || recovery.Modified > at {
		return
	}
	own := cluster.Token{Incarnation: s.fence.Incarnation, Epoch: s.fence.Epoch}
	s.raiseAlarm(own, now, "the store lost writes: it was restored to an earlier state while servers used it")
}

// checkToken compares the token that a node showed with the leader's own. A node unknown to the store with another
// incarnation comes from another store. It proves nothing about this one, and the watcher claims it above the
// generation that it knew.
func (s *Detector) checkToken(snap *store.Snapshot, status *cluster.NodeStatus, recovered bool, now time.Time) {
	shown := status.Token
	own := cluster.Token{Generation: shown.Generation, Incarnation: s.fence.Incarnation, Epoch: s.fence.Epoch}
	if node, ok := snap.Node(status.Name); ok {
		if node.Value.Domain != s.domain {
			return
		}
		own.Generation = node.Value.Generation
		if host, ok := snap.Host(status.Name); ok {
			own.Generation = max(own.Generation, host.Value.Generation)
		}
		if recovered {
			own.Generation = max(own.Generation, shown.Generation)
		}
	} else if shown.Incarnation != s.fence.Incarnation || snap.WantedDomain(status.Name) != s.domain {
		return
	}
	if shown.Compare(own) > 0 {
		s.raiseAlarm(shown, now, fmt.Sprintf("the store lost writes: node %s has seen %s, and the store is at %s",
			status.Name, tokenText(shown), tokenText(own)))
	}
}

// checkPlans searches attempts that were placed by a plan which the store does not have; the newest plan record is
// never deleted. It detects a loss within one term, which tokens do not show. former, unless nil, is the decision on an
// earlier loss; attempts of that loss are left to it.
func (s *Detector) checkPlans(snap *store.Snapshot, c store.Changes, now time.Time, former *cluster.Recovery) {
	last := snap.LastPlan(s.number)
	check := func(row *store.AttemptRow) {
		o := row.Observed
		if o == nil || cluster.DomainOfPlan(o.Plan) != s.number {
			return
		}
		s.highestPlan = max(s.highestPlan, o.Plan)
		if o.Plan <= last || row.Desired != nil || row.Outcome != nil || former != nil && lostBefore(o, former) {
			return
		}
		if status, ok := snap.NodeStatus(row.Node); !ok || status.Value.Token.Incarnation != s.fence.Incarnation {
			return // it comes from another store
		}
		own := cluster.Token{Incarnation: s.fence.Incarnation, Epoch: s.fence.Epoch}
		s.raiseAlarm(own, now, fmt.Sprintf(
			"the store lost writes: node %s runs %s, which plan %d placed, and the store's last plan is %d",
			row.Node, row.Task, o.Plan, last))
	}
	if c.Resync {
		for row := range snap.AllAttempts() {
			check(row)
		}
		return
	}
	for key := range c.Attempts { // order-free: one suffices
		if row, ok := snap.Attempt(key.Task, key.Number); ok {
			check(row)
		}
	}
}

// lostBefore reports whether an attempt that the store does not know belongs to the earlier loss: nothing is placed
// between a loss and its decision. An attempt that has not begun is recognised by its plan. The plan's number may have
// been given again since; the attempt is examined again once it begins.
func lostBefore(o *cluster.Observed, former *cluster.Recovery) bool {
	if former.State == cluster.RecoveryNeeded {
		return true
	}
	if o.Started.IsZero() {
		return o.Plan <= former.Plan
	}
	return !o.Started.After(former.Decided)
}

// raiseAlarm sets the alarm, unless there is one for a token as high.
func (s *Detector) raiseAlarm(shown cluster.Token, now time.Time, cause string) {
	since := now.UTC()
	if s.alarm != nil {
		if shown.Compare(s.alarm.Shown) <= 0 {
			return
		}
		since = s.alarm.Since
	}
	s.alarm = &cluster.Recovery{State: cluster.RecoveryNeeded, Shown: shown, Since: since, Cause: cause}
}

func tokenText(t cluster.Token) string {
	return fmt.Sprintf("incarnation %d, epoch %d, generation %d", t.Incarnation, t.Epoch, t.Generation)
}

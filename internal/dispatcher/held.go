package dispatcher

import (
	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// heldSentence is the message for agents at a start barrier before the operator's decision.
const heldSentence = "the store went back to an earlier state: no job's task begins until the operator has " +
	"decided how to continue"

// heldReason returns why an attempt must not begin on the session's node now, or "". After the store went back, it
// shows attempts as placed that have run since, and that the node may have forgotten. Such an attempt must not begin a
// second time (P1.7, P4.4). Two kinds of attempts therefore wait until the node has reported, and the control plane
// ends them as lost. So do attempts of a domain from which the node was taken. The two kinds are:
//
//   - attempts that an earlier incarnation of the store placed and no report mentions;
//   - all batch attempts, before the operator's decision, which begins another incarnation, or where the node has seen
//     a later store than this one, before the leader gave the alarm.
func (w *statusWriter) heldReason(snap *store.Snapshot, s *session, row *store.AttemptRow) string {
	if w.config.Without.Off(clause.Incarnation) || row.Desired == nil {
		return ""
	}
	if plan := row.Desired.Plan; plan != 0 && cluster.DomainOfPlan(plan) != domainNumber(snap, s.node) {
		return "another domain placed it before this one took the node by force" // that domain ends it as lost
	}
	own, placed := tokenFor(snap, s.node), row.Desired.Token.Incarnation
	switch {
	case row.Observed == nil && placed != 0 && placed < own.Incarnation:
		return "it was placed before the store went back, and the node has not reported it since"
	case !row.Desired.Batch():
		return ""
	case recoveryNeeded(snap, s.node):
		return heldSentence
	case seenLater(snap, s.node, s.shown) && s.shown.Compare(own) > 0:
		// A node of another store is claimed under a higher generation.
		return heldSentence
	}
	return ""
}

// recoveryNeeded reports whether the operator's decision is awaited in the domain of a node.
func recoveryNeeded(snap *store.Snapshot, node string) bool {
	e, ok := snap.Recovery(owningDomain(snap, node))
	return ok && e.Value.State == cluster.RecoveryNeeded
}

// domainNumber returns the number of the domain of a node.
func domainNumber(snap *store.Snapshot, node string) uint64 {
	n, _ := snap.DomainNumber(owningDomain(snap, node)) // 0 for a deleted one, whose nodes get no assignments
	return n
}

// compareRecovery adds to a start barrier the compare of the recovery record that it was decided by. An alarm that the
// tables do not hold yet, or another restore, then refuses the barrier.
func (w *statusWriter) compareRecovery(u *store.Unit, snap *store.Snapshot, node string) {
	if w.config.Without.Off(clause.Incarnation) {
		return
	}
	var rev uint64
	domain := owningDomain(snap, node)
	if e, ok := snap.Recovery(domain); ok {
		rev = e.Modified
	}
	u.Compare(w.config.Tables.Prefix().Recovery(domain), rev)
}

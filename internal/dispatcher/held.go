package dispatcher

import (
	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// heldSentence is told to agents that ask at a start barrier while the operator's decision is awaited.
const heldSentence = "the store went back to an earlier state: no job's task begins until the operator has " +
	"said how to go on"

// held says why an attempt is not begun on the session's node now, or nothing. A store that went back shows attempts as
// placed that have run since, and that the node has forgotten: what neither knows of is not begun a second time (P1.7,
// P4.4). So two kinds wait for the control plane, which ends them as lost once the node is heard:
//
//   - what an earlier incarnation of the store placed and no report tells of;
//   - of batch, all, while the operator's decision is awaited, or where the node has seen a later store than this one,
//     before the leader gave the alarm. Such a decision begins another incarnation.
func (d *Dispatcher) held(snap *store.Snapshot, s *session, row *store.AttemptRow) string {
	if d.config.Without.Off(clause.Incarnation) || row.Desired == nil {
		return ""
	}
	if n, ok := snap.Node(s.node); ok && n.Value.Domain != "" && n.Value.Domain != d.config.Domain {
		return "" // it is judged by another domain's leader, whose incarnation is another one
	}
	own, placed := d.token(snap, s.node), row.Desired.Token.Incarnation
	switch {
	case row.Observed == nil && placed != 0 && placed < own.Incarnation:
		return "it was placed before the store went back, and the node did not tell of it since"
	case !row.Desired.Batch():
		return ""
	case d.recoveryNeeded(snap):
		return heldSentence
	case seenLater(s.shown, own) && s.shown.Compare(own) > 0:
		// a node of another store is claimed under a higher generation
		return heldSentence
	}
	return ""
}

func (d *Dispatcher) recoveryNeeded(snap *store.Snapshot) bool {
	e, ok := snap.Recovery(d.config.Domain)
	return ok && e.Value.State == cluster.RecoveryNeeded
}

// compareRecovery makes a start barrier rest on the recovery record by which it was judged: an alarm that the tables do
// not hold yet, or another restore's, keeps it out.
func (d *Dispatcher) compareRecovery(u *store.Unit, snap *store.Snapshot) {
	if d.config.Without.Off(clause.Incarnation) {
		return
	}
	var rev uint64
	if e, ok := snap.Recovery(d.config.Domain); ok {
		rev = e.Modified
	}
	u.Compare(d.config.Tables.Prefix().Recovery(d.config.Domain), rev)
}

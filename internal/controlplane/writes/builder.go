// Package writes turns decisions of a leader into units: writes with the records that they rest on as preconditions.
package writes

import (
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// Builder makes the units of one cycle from a snapshot. Each unit compares the records that its decision rests on.
type Builder struct {
	Snap   *store.Snapshot
	Prefix store.Prefix
	// Token is that of the records that agents receive.
	Token cluster.Token
	Now   time.Time
	// UnknownPlan is the number of the plan record whose write has an unknown result; 0 if there is none (P3.3).
	UnknownPlan uint64
	// Requires are further preconditions of stops.
	Requires []store.Compare
}

// ConclusionUnit writes an outcome, projects the attempt if that has not been done, and turns it into a stop. An
// attempt whose agent reported the end is not projected any more (P4.2).
func (b *Builder) ConclusionUnit(c *reconciler.Conclusion) (store.Unit, error) {
	out := &c.Outcome
	var u store.Unit
	u.Compare(b.Prefix.Outcome(out.Task, out.Attempt), 0)
	if out.Node != "" { // else it was never placed
		u.Compare(b.Prefix.Observed(out.Node, out.Task), c.ObservedRev)
	}
	if err := u.Put(b.Prefix.Outcome(out.Task, out.Attempt), out); err != nil {
		return u, err
	}
	row, _ := b.Snap.Attempt(out.Task, out.Attempt)
	desired := c.Desired
	if desired == nil && row != nil && c.DesiredRev == 0 {
		desired = row.Desired
	}
	switch {
	case endsUnprojected(row, out):
		u.Compare(b.Prefix.Desired(out.Node, out.Task), 0)
	case desired != nil:
		if err := b.putDesired(&u, desired, c.DesiredRev, row); err != nil {
			return u, err
		}
	}
	if b.isNewest(out.Task, out.Attempt) {
		u.Delete(b.Prefix.Scheduled(out.Task))
	}
	u.Event(c.Event)
	return u, nil
}

// reconnectUnit deletes the outcome of a lost attempt that goes on, unless a record of the attempt or of its node has
// changed. A plan record that places the next attempt compares that the outcome exists (P3.7). The unit compares that
// the plan record with an unknown result does not exist. If the unit is late itself, and the next attempt was placed
// meanwhile, one of the reasons for the reconnection is gone, and with it the record that said so.
func (b *Builder) reconnectUnit(c *reconciler.Reconnect) (store.Unit, bool) {
	var u store.Unit
	row, ok := b.Snap.Attempt(c.Task, c.Attempt)
	if !ok || row.OutcomeRev == 0 || row.DesiredRev == 0 || row.ObservedRev == 0 || row.Packed {
		return u, false
	}
	b.deleteOutcome(&u, row)
	u.Compare(b.Prefix.Desired(row.Node, row.Task), row.DesiredRev)
	u.Compare(b.Prefix.Observed(row.Node, row.Task), row.ObservedRev)
	status, _ := b.Snap.NodeStatus(row.Node)
	u.Compare(b.Prefix.NodeStatus(row.Node), status.Modified)
	node, _ := b.Snap.Node(row.Node)
	u.Compare(b.Prefix.Node(row.Node), node.Modified)
	if b.UnknownPlan != 0 {
		u.Compare(b.Prefix.Plan(b.UnknownPlan), 0)
	}
	u.Mark(b.Prefix.Scheduled(row.Task))
	u.Event(c.Event)
	return u, true
}

// endsUnprojected reports whether an attempt needs no desired record for its end: it has none, and its agent has
// reported the end.
func endsUnprojected(row *store.AttemptRow, out *cluster.Outcome) bool {
	return row != nil && row.DesiredRev == 0 && row.PlanRev != 0 && out.State != cluster.StateLost &&
		row.Observed != nil && row.Observed.UUID == row.Desired.UUID && row.Observed.State.Terminal()
}

// putDesired adds the write of a desired record. If the attempt is not projected yet, the unit compares its plan record
// (P3.4).
func (b *Builder) putDesired(u *store.Unit, d *cluster.Desired, rev uint64, row *store.AttemptRow) error {
	key := b.Prefix.Desired(d.Node, d.Task)
	u.Compare(key, rev)
	if rev == 0 && row != nil && row.PlanRev != 0 {
		u.Compare(b.Prefix.Plan(row.Plan), row.PlanRev)
	}
	record := *d
	record.Token = b.Token
	return u.Put(key, &record)
}

// isNewest reports whether no later attempt of the task has records.
func (b *Builder) isNewest(task cluster.TaskID, attempt int) bool {
	for row := range b.Snap.TaskAttempts(task) {
		if row.Number > attempt {
			return false
		}
	}
	return true
}

// StopUnit returns the unit that writes the stop of an attempt. It fails where the attempt has got an outcome.
func (b *Builder) StopUnit(s *reconciler.Stop) (store.Unit, error) {
	var u store.Unit
	u.Compares = slices.Clone(b.Requires)
	row, _ := b.Snap.Attempt(s.Desired.Task, s.Desired.Attempt)
	if row == nil || row.Outcome == nil {
		u.Compare(b.Prefix.Outcome(s.Desired.Task, s.Desired.Attempt), 0)
	}
	if row != nil && (s.Unbegun || s.Rev == 0 && row.ObservedRev != 0) {
		// or a late write would bring it back
		u.Compare(b.Prefix.Observed(s.Desired.Node, s.Desired.Task), row.ObservedRev)
	}
	if err := b.putDesired(&u, &s.Desired, s.Rev, row); err != nil {
		return u, err
	}
	u.Event(s.Event)
	return u, nil
}

// adoptionUnit writes the desired record of an attempt that has only a status.
func (b *Builder) adoptionUnit(a *reconciler.Adoption) (store.Unit, error) {
	var u store.Unit
	d := &a.Desired
	u.Compare(b.Prefix.Outcome(d.Task, d.Attempt), 0)
	u.Compare(b.Prefix.Observed(d.Node, d.Task), a.ObservedRev)
	u.Mark(b.Prefix.Scheduled(d.Task))
	u.Event(a.Event)
	return u, b.putDesired(&u, d, 0, nil)
}

// cleanupUnit deletes the records left of an ended attempt, unless its plan record still exists (P3.4). Without a
// desired record, the status may go before the plan record.
func (b *Builder) cleanupUnit(c *reconciler.Cleanup) (store.Unit, bool) {
	var u store.Unit
	if row, ok := b.Snap.Attempt(c.Task, c.Attempt); ok && row.PlanRev != 0 {
		if c.DesiredRev != 0 || c.ObservedRev == 0 {
			return u, false
		}
		u.Compare(b.Prefix.Outcome(c.Task, c.Attempt), row.OutcomeRev)
		u.Compare(b.Prefix.Desired(c.Node, c.Task), 0)
	}
	if c.DesiredRev != 0 {
		key := b.Prefix.Desired(c.Node, c.Task)
		u.Compare(key, c.DesiredRev)
		u.Delete(key)
	}
	if c.ObservedRev != 0 {
		key := b.Prefix.Observed(c.Node, c.Task)
		u.Compare(key, c.ObservedRev)
		u.Delete(key)
	}
	return u, true
}

// deleteOutcome deletes an outcome and compares it: a late deletion must not take a newer one.
func (b *Builder) deleteOutcome(u *store.Unit, row *store.AttemptRow) {
	key := b.Prefix.Outcome(row.Task, row.Number)
	u.Compare(key, row.OutcomeRev)
	u.Delete(key)
}

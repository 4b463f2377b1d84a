package store

import "github.com/berthd/berth/internal/cluster"

// AttemptRow joins all records of one attempt of a task. It is shared by all snapshots: callers must not change it. A
// row with a number below 1 represents foreign records of a task on a node that has no other records of it, see
// IsForeign. The foreign record is under the key of a desired record (Foreign) or of a status (ObservedRev without
// Observed).
type AttemptRow struct {
	Task   cluster.TaskID
	Number int
	Node   string
	// Desired is the projected record. With DesiredRev 0 it is made from the plan record (P3.4). If such an attempt has
	// an outcome other than a loss, its agent has reported the end (P4.2). Desired then has an ended stop.
	cluster.Attempt
	// Plan and PlanRev are the number and the revision of the plan record, 0 once the plan record is deleted.
	Plan, PlanRev uint64
	OutcomeRev    uint64
	// Foreign, unless nil, is the record under the desired key, which cannot be decoded or is foreign. The task is
	// pinned to the node (P3.5), and DesiredRev is the revision of the foreign record.
	Foreign *ForeignRecord
	// ForeignStatus says that no agent wrote the record under the status key. Observed is then the last status that the
	// tables could read, and ObservedRev the revision of the foreign record.
	ForeignStatus bool
	// Packed says that the outcome is in the record of packed tasks of its step, whose revision OutcomeRev is. Such a
	// row is found by its task alone.
	Packed bool

	planned *cluster.Desired // made from the plan record; nil once the plan record is deleted
}

// ForeignRecord is the content of a record that Berth did not write, at the key of a desired record.
type ForeignRecord struct {
	// Command is what the record says in a domain whose scheduler has the type kv. Fault, unless nil, is why it says
	// nothing.
	Command cluster.TaskCommand
	Fault   error
	// New says that the key did not exist before the record, or before another foreign record that it replaced.
	New bool

	created uint64 // revision of the creation of the key
}

// IsUnreadable reports whether the record under the desired key cannot be decoded or is foreign (P3.5).
func (r *AttemptRow) IsUnreadable() bool { return r.Foreign != nil }

// IsForeign reports whether the row represents foreign records alone, and no attempt.
func (r *AttemptRow) IsForeign() bool { return r.Number < 1 }

// Ref returns the owner of the attempt, from its records or else from its id. It returns false for an id that Berth did
// not make.
func (r *AttemptRow) Ref() (cluster.OwnerRef, bool) {
	switch {
	case r.Desired != nil:
		return r.Desired.Owner, true
	case r.Outcome != nil:
		return r.Outcome.Owner, true
	}
	return r.Task.Owner()
}

// Live reports whether the attempt has records but no outcome.
func (r *AttemptRow) Live() bool { return r.Outcome == nil }

// Standing reports whether a state or status record of the attempt is on its node (P3.6).
func (r *AttemptRow) Standing() bool {
	return r.DesiredRev != 0 || r.ObservedRev != 0 || r.PlanRev != 0 && r.Outcome == nil
}

// EndsByOutcome reports whether the attempt has an outcome and no desired record, although its plan record still
// exists: its agent has reported the end (P4.2). The dispatcher deletes its status at the agent's last report, and
// takes no report after that.
func (r *AttemptRow) EndsByOutcome() bool {
	return r.DesiredRev == 0 && r.Outcome != nil && r.planned != nil && r.Desired.Ended()
}

// setUnprojected sets the desired record of an attempt that has none of its own.
func (r *AttemptRow) setUnprojected() {
	ended := r.planned != nil && r.Outcome != nil && r.Outcome.State != cluster.StateLost
	switch {
	case r.DesiredRev != 0 || ended && r.Desired != nil && r.Desired.Ended() && r.Desired.UUID == r.planned.UUID:
	case ended:
		d := *r.planned
		d.Stop = cluster.EndedStop()
		r.Desired = &d
	default:
		r.Desired = r.planned
	}
}

func (r *AttemptRow) empty() bool {
	return r.PlanRev == 0 && r.DesiredRev == 0 && r.ObservedRev == 0 && r.OutcomeRev == 0
}

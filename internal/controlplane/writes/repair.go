package writes

import (
	"fmt"
	"log/slog"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/fleetview"
	"github.com/berthd/berth/internal/controlplane/nodewatch"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// Repair writes back, or deletes, the records of attempts that others wrote over.
type Repair struct {
	Builder
	config RepairConfig
}

// RepairConfig is what NewRepair needs.
type RepairConfig struct {
	Nodes  *nodewatch.Watch
	View   *fleetview.View
	Logger *slog.Logger
	// TakeRecord takes a foreign record as a command. If the record stays, it is not repaired. refusal, unless "", is
	// why the command was refused.
	TakeRecord func(row *store.AttemptRow) (stays bool, refusal string)
}

// NewRepair returns the repair of one cycle.
func NewRepair(b Builder, c RepairConfig) *Repair { return &Repair{Builder: b, config: c} }

// Tasks gathers the attempts of an owner for the reconciler. Records that are foreign or unreadable are repaired first,
// unless they are commands (P3.9).
func (r *Repair) Tasks(domain *observe.Domain, o cluster.OwnerRef, units *[]store.Unit) []reconciler.Task {
	var out []reconciler.Task
	for row := range r.Snap.Attempts(o) {
		if row.IsUnreadable() {
			if stays, refusal := r.config.TakeRecord(row); !stays {
				*units = append(*units, r.repairRecord(row, refusal)...)
			}
		}
		if row.IsForeign() {
			*units = append(*units, r.deleteForeignStatus(row)...)
			continue
		}
		if row.ForeignStatus && row.Observed != nil {
			*units = append(*units, r.restoreStatus(row)...)
		}
		out = append(out, domain.Task(o, row))
	}
	return out
}

// repairRecord deals with a record under state/<node>/<task> that is not the control plane's (P3.5, P3.9, T14).
//
//   - The record took no other one's place: it is deleted.
//   - The tables know the former record: it is written back.
//   - They do not, and the node's full report has a live attempt, or its plan record still exists: the record is
//     made from these.
//   - They do not, and the node has reported no such task since, or is gone or unknown: the record is deleted, and the
//     task may be placed. If an attempt stood there, it gets its outcome, so that its number is not used again.
//   - Until the node has reported, nothing is done: the task stays pinned to the node, and nothing new is placed
//     there. A node whose session is older than the record is requested to send a new full report.
//
// refusal, unless "", says why the record was refused as a command.
func (r *Repair) repairRecord(row *store.AttemptRow, refusal string) []store.Unit {
	key := r.Prefix.Desired(row.Node, row.Task)
	var u store.Unit
	u.Compare(key, row.DesiredRev)
	desired := row.Desired
	gone, stray := r.isGone(row.Node), observe.HidesNothing(r.Snap, row)
	switch {
	case desired != nil:
	case gone, stray:
	case !r.config.Nodes.HasReported(row.Node):
		return nil
	default:
		if desired = r.rebuildDesired(row, &u); desired == nil && !r.config.View.HasReportedSince(r.Snap, row) {
			return r.requestFullReport(row.Node)
		}
	}
	event := cluster.Event{Type: "task.record-restored", Task: row.Task, Attempt: max(0, row.Number), Node: row.Node}
	if desired == nil {
		u.Delete(key)
		event.Type = "task.record-removed"
		event.Message = "a record that is not the control plane's stood for a task that its node does not run"
		if stray {
			event.Message = "a record of another program was deleted: only the scheduler kv takes commands from records"
		} else if err := r.addLostOutcome(row, gone, &u); err != nil {
			r.config.Logger.Error("an outcome cannot be written", "task", row.Task, "attempt", row.Number, "node",
				row.Node, "error", err)
			return nil
		}
	} else {
		event.Message = "a record that is not the control plane's was replaced by what is wanted"
		if err := u.Put(key, desired); err != nil {
			r.config.Logger.Error("a record cannot be restored", "key", key, "error", err)
			return nil
		}
	}
	if refusal != "" {
		event.Type, event.Message = "task.record-refused", "the record of another program was refused: "+refusal
	}
	u.Event(event)
	r.config.Logger.Warn("a foreign record was found", "key", key, "restored", desired != nil)
	return []store.Unit{u}
}

// isGone reports whether a node is known never to come back, or is no node at all: its agent never registered, or the
// operator forgot it. A record there hides nothing.
func (r *Repair) isGone(node string) bool {
	_, registered := r.Snap.NodeStatus(node)
	_, owned := r.Snap.Node(node)
	return r.config.Nodes.IsGone(node) || !registered && !owned
}

// requestFullReport ends the session of a node, as another registration of it would (P6.1). Its agent then registers
// again and reports everything. A session without a full report does that anyway.
func (r *Repair) requestFullReport(node string) []store.Unit {
	e, ok := r.Snap.NodeStatus(node)
	if !ok || !e.Value.Synced {
		return nil
	}
	var u store.Unit
	u.Compare(e.Key, e.Modified)
	next := *e.Value
	next.Session, next.Synced = next.Session+1, false
	if err := u.Put(e.Key, &next); err != nil {
		r.config.Logger.Error("a full report cannot be requested", "node", node, "error", err)
		return nil
	}
	r.config.Logger.Warn("a foreign record hides what runs on a node; a full report is requested", "node", node)
	return []store.Unit{u}
}

// deleteForeignStatus deletes a foreign record at the key of a task's status, once its node has reported without the
// task.
func (r *Repair) deleteForeignStatus(row *store.AttemptRow) []store.Unit {
	switch {
	case row.ObservedRev == 0 || row.DesiredRev != 0:
		return nil
	case r.isGone(row.Node):
	case !r.config.Nodes.HasReported(row.Node):
		return nil
	case !r.config.View.HasReportedSince(r.Snap, row):
		return r.requestFullReport(row.Node)
	}
	key := r.Prefix.Observed(row.Node, row.Task)
	var u store.Unit
	u.Compare(key, row.ObservedRev)
	u.Delete(key)
	u.Event(cluster.Event{
		Type: "task.record-removed", Task: row.Task, Node: row.Node,
		Message: "a record that no agent wrote stood for the task's status",
	})
	return []store.Unit{u}
}

// maxKeyInEvent bounds what an event quotes of a key, in bytes.
const maxKeyInEvent = 200

// DeleteStrays deletes foreign records on nodes of the domain whose keys name no task of Berth. The leader of the
// default domain also deletes those on unknown nodes.
func (r *Repair) DeleteStrays(domain string) (units []store.Unit) {
	for row := range r.config.View.Strays(r.Snap) {
		at := cluster.DefaultDomain
		if n, ok := r.Snap.Node(row.Node); ok {
			at = n.Value.Domain
		}
		if at != domain {
			continue
		}
		var u store.Unit
		if row.IsUnreadable() {
			u.Compare(r.Prefix.Desired(row.Node, row.Task), row.DesiredRev)
			u.Delete(r.Prefix.Desired(row.Node, row.Task))
		}
		if row.ForeignStatus {
			u.Compare(r.Prefix.Observed(row.Node, row.Task), row.ObservedRev)
			u.Delete(r.Prefix.Observed(row.Node, row.Task))
		}
		key := row.Node + "/" + string(row.Task)
		u.Event(cluster.Event{
			Type: "task.record-removed", Reason: cluster.ReasonForeignWrite,
			Message: fmt.Sprintf("a record of another program at %q was removed: that is not <node>/<task>",
				key[:min(len(key), maxKeyInEvent)]),
		})
		units = append(units, u)
	}
	return units
}

// restoreStatus writes the status of an attempt back from the tables after a foreign write. Its agent does not report
// again what it knows to be durable.
func (r *Repair) restoreStatus(row *store.AttemptRow) []store.Unit {
	key := r.Prefix.Observed(row.Node, row.Task)
	var u store.Unit
	u.Compare(key, row.ObservedRev)
	if err := u.Put(key, row.Observed); err != nil {
		r.config.Logger.Error("a status cannot be restored", "key", key, "error", err)
		return nil
	}
	u.Event(cluster.Event{
		Type: "task.record-restored", Task: row.Task, Attempt: row.Number, Node: row.Node,
		Message: "a record that no agent wrote was replaced by what the agent had reported",
	})
	return []store.Unit{u}
}

// rebuildDesired makes the desired record of an attempt that was planned on the node, or that the node reported.
func (r *Repair) rebuildDesired(row *store.AttemptRow, u *store.Unit) *cluster.Desired {
	for other := range r.Snap.TaskAttempts(row.Task) {
		if other.Node != row.Node || other.Outcome != nil || other.IsForeign() {
			continue
		}
		u.Compare(r.Prefix.Outcome(other.Task, other.Number), 0)
		if other.Desired != nil && other.PlanRev != 0 {
			u.Compare(r.Prefix.Plan(other.Plan), other.PlanRev) // as a projection does (P3.4)
			return other.Desired
		}
		o := other.Observed
		if o == nil || o.State.Terminal() {
			continue
		}
		d := &cluster.Desired{
			Task: o.Task, Attempt: o.Attempt, UUID: o.UUID, Node: row.Node, Placed: o.Started, Plan: o.Plan,
			Token: r.Token,
		}
		if !observe.FillFromOwner(r.Snap, d) {
			return nil
		}
		if o.Definition != (cluster.Ref{}) {
			d.Definition, d.Count, d.Ports, d.Devices = o.Definition, o.Count, o.Ports, o.Devices
		}
		return d
	}
	return nil
}

// addLostOutcome adds the outcome of the attempt whose record was lost. Its number follows the newest attempt with
// records, if that one has ended. The attempt counts as a try only if it may have begun: if a record exists at the key
// of its status, or if the node is gone and cannot be asked.
func (r *Repair) addLostOutcome(row *store.AttemptRow, gone bool, u *store.Unit) error {
	number := 1
	for other := range r.Snap.TaskAttempts(row.Task) {
		if other.IsForeign() {
			continue
		}
		if other.Outcome == nil {
			return nil
		}
		number = other.Number + 1
	}
	d := &cluster.Desired{Task: row.Task}
	if !observe.FillFromOwner(r.Snap, d) {
		return nil
	}
	begun := gone || row.ObservedRev != 0
	out := &cluster.Outcome{
		Task: row.Task, Attempt: number, Node: row.Node, Owner: d.Owner, Definition: d.Definition,
		State: cluster.StateLost, Reason: cluster.ReasonForeignWrite, Started: begun, Free: !begun, Ended: r.Now.UTC(),
		Message: "a foreign writer replaced its record, and its node does not know it",
	}
	key := r.Prefix.Outcome(row.Task, number)
	u.Compare(key, 0)
	owner := d.Owner
	u.Event(cluster.Event{
		Type: "task.lost", Cluster: owner.Cluster, Owner: &owner, Task: row.Task, Attempt: number, Node: row.Node,
		Reason: out.Reason, Message: out.Message,
	})
	return u.Put(key, out)
}

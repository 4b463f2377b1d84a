package controlplane

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// mend deals with a record under state/<node>/<task> that is not the control plane's (P3.5, P3.9, T14).
//
//   - The tables know what stood there: it is written back.
//   - They do not, and the node's full report tells of a live attempt: its record is made from that.
//   - They do not, and the node reported no such task: the record is deleted, and the task may be placed.
//   - Until the node reported, nothing is done and the task stays pinned to it.
func (l *loop) mend(snap *store.Snapshot, row *store.AttemptRow) []store.Unit {
	prefix := l.config.Tables.Prefix()
	key := prefix.Desired(row.Node, row.Task)
	var u store.Unit
	u.Compare(key, row.DesiredRev)
	desired := row.Desired
	if desired == nil {
		if !l.watch.reported(row.Node) {
			return nil
		}
		desired = l.adopt(snap, row)
	}
	event := cluster.Event{Type: "task.record-restored", Task: row.Task, Attempt: row.Number, Node: row.Node}
	if desired == nil {
		u.Delete(key)
		event.Type = "task.record-removed"
		event.Message = "a record that is not the control plane's stood for a task that its node does not run"
	} else {
		event.Message = "a record that is not the control plane's was replaced by what is wanted"
		if err := u.Put(key, desired); err != nil {
			l.config.Logger.Error("a record cannot be restored", "key", key, "error", err)
			return nil
		}
	}
	u.Event(event)
	l.config.Logger.Warn("a foreign record was found", "key", key, "restored", desired != nil)
	return []store.Unit{u}
}

// clear deletes a foreign record that stands for a task's status, once its node reported without it.
func (l *loop) clear(row *store.AttemptRow) []store.Unit {
	if row.ObservedRev == 0 || row.DesiredRev != 0 || !l.watch.reported(row.Node) {
		return nil
	}
	key := l.config.Tables.Prefix().Observed(row.Node, row.Task)
	var u store.Unit
	u.Compare(key, row.ObservedRev)
	u.Delete(key)
	u.Event(cluster.Event{
		Type: "task.record-removed", Task: row.Task, Node: row.Node,
		Message: "a record that no agent wrote stood for the task's status",
	})
	return []store.Unit{u}
}

// adopt makes the desired record of a live attempt that the node reported.
func (l *loop) adopt(snap *store.Snapshot, row *store.AttemptRow) *cluster.Desired {
	for other := range snap.TaskAttempts(row.Task) {
		o := other.Observed
		if o == nil || other.Node != row.Node || other.Outcome != nil || o.State.Terminal() {
			continue
		}
		d := &cluster.Desired{
			Task: o.Task, Attempt: o.Attempt, UUID: o.UUID, Node: row.Node, Placed: o.Started,
			Token: cluster.Token{Incarnation: l.fence.Incarnation, Epoch: l.fence.Epoch},
		}
		if !l.describe(snap, d) {
			return nil
		}
		return d
	}
	return nil
}

// describe fills a desired record from the task's owner, and reports whether there is one.
func (l *loop) describe(snap *store.Snapshot, d *cluster.Desired) bool {
	parts, ok := d.Task.Parts()
	if !ok {
		return false
	}
	if e, ok := snap.Service(parts.Cluster, parts.Owner); ok && parts.Step == "" {
		d.Owner, d.Definition, d.Count = e.Value.Owner(), e.Value.Definition, e.Value.Count
		d.Priority, d.OnDisconnect = e.Value.Priority, e.Value.OnDisconnect
		return true
	}
	e, ok := snap.Job(parts.Cluster, parts.Owner)
	if !ok {
		return false
	}
	step := e.Value.Step(parts.Step)
	if step == nil {
		return false
	}
	d.Owner, d.Definition, d.Count = e.Value.Owner(), step.Definition, step.Count
	d.Priority, d.TimeLimit, d.OnDisconnect = e.Value.Priority, step.TimeLimit, step.OnDisconnect
	return true
}

// pinned reports whether an unreadable record stands for the task somewhere: then it is not pending (P3.5).
func pinned(snap *store.Snapshot, task cluster.TaskID) bool {
	for row := range snap.TaskAttempts(task) {
		if row.Unreadable {
			return true
		}
	}
	return false
}

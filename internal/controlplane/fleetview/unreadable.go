package fleetview

import (
	"iter"

	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// unreadableRecord is a record that hides what runs on a node. session is the node's newest session when the record was
// first seen. A report of that session may be older than the record, and an agent does not report again what it knows
// to be durable.
type unreadableRecord struct {
	node    string
	session uint64
}

func sessionOf(snap *store.Snapshot, node string) uint64 {
	if e, ok := snap.NodeStatus(node); ok {
		return e.Value.Session
	}
	return 0
}

// noteUnreadable takes note of whether a record hides what runs on its node. Such a node takes no tasks, because the
// tasks beside them would be unknown.
func (v *View) noteUnreadable(snap *store.Snapshot, key store.AttemptKey, row *store.AttemptRow) {
	was, now := unreadableRecord{}, ""
	if len(v.unreadable) > 0 {
		was = v.unreadable[key]
	}
	if row != nil && observe.HidesTask(snap, row) {
		now = row.Node
	}
	if was.node == now {
		return
	}
	delete(v.unreadable, key)
	if now != "" {
		v.unreadable[key] = unreadableRecord{node: now, session: sessionOf(snap, now)}
	}
	for _, name := range []string{was.node, now} {
		if name != "" {
			v.setNode(snap, name)
		}
	}
}

// noteScheduler takes note of a changed domain: with a scheduler of the type kv, a foreign record may be a command,
// which hides nothing (P3.9).
func (v *View) noteScheduler(snap *store.Snapshot) {
	for row := range snap.AllAttempts() {
		if row.IsForeign() {
			v.chargeRow(snap, store.AttemptKey{Task: row.Task, Number: row.Number}, row)
		}
	}
}

// Strays yields the foreign records whose keys name no task of Berth.
func (v *View) Strays(snap *store.Snapshot) iter.Seq[*store.AttemptRow] {
	return func(yield func(*store.AttemptRow) bool) {
		for key := range v.unreadable { // order-free: each record by itself
			row, ok := snap.Attempt(key.Task, key.Number)
			if _, isTask := key.Task.Parts(); ok && !isTask && !yield(row) {
				return
			}
		}
	}
}

// HasReportedSince reports whether the node sent a full report after a foreign record hid one of its tasks.
func (v *View) HasReportedSince(snap *store.Snapshot, row *store.AttemptRow) bool {
	record, hidden := v.unreadable[store.AttemptKey{Task: row.Task, Number: row.Number}]
	e, ok := snap.NodeStatus(row.Node)
	return !hidden || ok && e.Value.Synced && e.Value.Session > record.session
}

package fleetview

import (
	"iter"

	"github.com/berthd/berth/internal/cluster"
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

// foreignRecords are the records of other programs that concern a domain.
type foreignRecords struct {
	// unreadable holds the records that hide what runs on a node. The leader places nothing on these nodes until their
	// agents have reported.
	unreadable map[store.AttemptKey]unreadableRecord
	strays     map[store.AttemptKey]bool // those whose keys name no task
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
	if key.Number < 1 {
		v.noteStray(key, row)
	}
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

// noteStray takes note of a foreign record whose key names no node or no task of Berth.
func (f *foreignRecords) noteStray(key store.AttemptKey, row *store.AttemptRow) {
	if _, isTask := key.Task.Parts(); row != nil && (!isTask || !cluster.ValidNodeName(row.Node)) {
		f.strays[key] = true
	} else {
		delete(f.strays, key)
	}
}

// Strays yields the foreign records whose keys name no node or no task of Berth.
func (f *foreignRecords) Strays(snap *store.Snapshot) iter.Seq[*store.AttemptRow] {
	return func(yield func(*store.AttemptRow) bool) {
		for key := range f.strays { // order-free: each record by itself
			if row, ok := snap.Attempt(key.Task, key.Number); ok && !yield(row) {
				return
			}
		}
	}
}

// HasReportedSince reports whether the node sent a full report after a foreign record hid one of its tasks.
func (f *foreignRecords) HasReportedSince(snap *store.Snapshot, row *store.AttemptRow) bool {
	record, hidden := f.unreadable[store.AttemptKey{Task: row.Task, Number: row.Number}]
	e, ok := snap.NodeStatus(row.Node)
	return !hidden || ok && e.Value.Synced && e.Value.Session > record.session
}

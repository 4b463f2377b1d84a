package observe

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// Node returns the scheduler's node for a node of a domain, or nil if the node is not in the domain. The caller adds
// the node's reservations, and cordons a node that is not known well enough.
func Node(snap *store.Snapshot, domain, name string) *scheduler.Node {
	node, ok := snap.Node(name)
	if !ok || node.Value.Domain != domain {
		return nil
	}
	host, _ := snap.Host(name)
	status, _ := snap.NodeStatus(name)
	n := scheduler.NodeOf(host.Value, node.Value, status.Value)
	return &n
}

// HidesTask reports whether a row hides what runs on its node: a foreign or unreadable record represents a task (P3.5).
// No task may be placed beside it, because the free resources are not known.
func HidesTask(snap *store.Snapshot, row *store.AttemptRow) bool {
	return row.IsForeign() && (row.IsUnreadable() || row.ObservedRev != 0) && !HidesNothing(snap, row)
}

// HidesNothing reports whether a row is a foreign record at a key that did not exist before, on a node without another
// record of the task but those of attempts that have ended. So it took no record's place, and represents no task.
func HidesNothing(snap *store.Snapshot, row *store.AttemptRow) bool {
	if !row.IsForeign() || !row.IsUnreadable() || row.ObservedRev != 0 || !row.Foreign.New {
		return false
	}
	for other := range snap.TaskAttempts(row.Task) {
		if !other.IsForeign() && other.Node == row.Node && other.Outcome == nil {
			return false
		}
	}
	return true
}

// IsCommand reports whether a row is a command of a program that places tasks by records in the store (P3.9): it hides
// nothing, and the domain of the task has a scheduler of the type kv.
func IsCommand(snap *store.Snapshot, row *store.AttemptRow) bool {
	return HidesNothing(snap, row) && IsPlacedByRecords(snap, row.Task)
}

// IsPlacedByRecords reports whether the domain of a task has a scheduler of the type kv.
func IsPlacedByRecords(snap *store.Snapshot, task cluster.TaskID) bool {
	parts, ok := task.Parts()
	if !ok {
		return false
	}
	c, _ := snap.Cluster(parts.Cluster)
	d, _ := snap.Domain(c.Value.InDomain())
	return d.Value.HasKVScheduler()
}

// OnlyDaemons reports whether all tasks on a node belong to daemons.
func OnlyDaemons(snap *store.Snapshot, node string) bool {
	for row := range snap.NodeAttempts(node) {
		if !row.Standing() {
			continue
		}
		o, ok := row.Ref()
		e, exists := snap.Service(o.Cluster, o.Name)
		if !ok || !exists || o.Kind != cluster.KindService || e.Value.Mode != cluster.ModeDaemon {
			return false
		}
	}
	return true
}

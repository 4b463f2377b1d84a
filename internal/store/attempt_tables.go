package store

import (
	"iter"
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// planTables hold the plan records, by their number.
type planTables struct {
	plans tree[uint64, Entry[cluster.PlanRecord]]
}

// Plans returns the plan records of the domain with the number, by their number.
func (p *planTables) Plans(domain uint64) iter.Seq[Entry[cluster.PlanRecord]] {
	return func(yield func(Entry[cluster.PlanRecord]) bool) {
		p.plans.Ascend(cluster.FirstPlan(domain), func(seq uint64, e Entry[cluster.PlanRecord]) bool {
			return cluster.DomainOfPlan(seq) == domain && yield(e)
		})
	}
}

// LastPlan returns the number of the newest plan record of the domain with the number. If the domain has none, that is
// cluster.FirstPlan of the domain.
func (p *planTables) LastPlan(domain uint64) uint64 {
	seq, _, _ := p.plans.MaxBelow(cluster.FirstPlan(domain + 1))
	return max(seq, cluster.FirstPlan(domain))
}

func (p *planTables) findPlan(rest string) (Record, any, bool) {
	seq, err := strconv.ParseUint(rest, 10, 64)
	if err != nil {
		return Record{}, nil, false
	}
	return found(p.plans.Get(seq))
}

// attemptTables hold the attempts of tasks, each joined from its records in one row.
type attemptTables struct {
	attempts tree[cluster.TaskID, []*AttemptRow] // a task's attempts, oldest first
	byNode   tree[string, struct{}]              // "<node>/<task>" for each node with attempts of a task
	rows     int                                 // the number of attempts
	packedTables
}

// Attempts returns the attempts of all tasks of a service or a job, ordered by task id, then number, without those of
// packed tasks. The names of services and jobs of a cluster are distinct.
func (a *attemptTables) Attempts(o cluster.OwnerRef) iter.Seq[*AttemptRow] {
	return a.scanRows(o.Cluster + "." + o.Name + ".")
}

// TaskAttempts returns the attempts of one task, the oldest first.
func (a *attemptTables) TaskAttempts(task cluster.TaskID) iter.Seq[*AttemptRow] {
	return func(yield func(*AttemptRow) bool) {
		rows, _ := a.attempts.Get(task)
		for _, r := range rows {
			if !yield(r) {
				return
			}
		}
		if len(rows) == 0 {
			if r := a.packedRow(task); r != nil {
				yield(r)
			}
		}
	}
}

// Attempt returns one attempt of a task.
func (a *attemptTables) Attempt(task cluster.TaskID, number int) (*AttemptRow, bool) {
	rows, _ := a.attempts.Get(task)
	if at, ok := findNumber(rows, number); ok {
		return rows[at], true
	}
	if r := a.packedRow(task); r != nil && r.Number == number {
		return r, true
	}
	return nil, false
}

// ForeignRow returns the row of a task's foreign records on a node that has no other records of it.
func (a *attemptTables) ForeignRow(node string, task cluster.TaskID) (*AttemptRow, bool) {
	rows, _ := a.attempts.Get(task)
	for _, r := range rows {
		if r.IsForeign() && r.Node == node {
			return r, true
		}
	}
	return nil, false
}

// findNumber returns the index of an attempt among the rows of its task, or the index to insert it at. It searches from
// the end, since callers mostly need the newest attempt.
func findNumber(rows []*AttemptRow, number int) (at int, exists bool) {
	for at = len(rows); at > 0 && rows[at-1].Number >= number; at-- {
		if rows[at-1].Number == number {
			return at - 1, true
		}
	}
	return at, false
}

// NodeAttempts returns the attempts that were placed on a node, ordered by task id, then number.
func (a *attemptTables) NodeAttempts(node string) iter.Seq[*AttemptRow] {
	return func(yield func(*AttemptRow) bool) {
		prefix := node + "/"
		a.byNode.Ascend(prefix, func(k string, _ struct{}) bool {
			task, ok := strings.CutPrefix(k, prefix)
			if !ok {
				return false
			}
			rows, _ := a.attempts.Get(cluster.TaskID(task))
			for _, r := range rows {
				if r.Node == node && !yield(r) {
					return false
				}
			}
			return true
		})
	}
}

// RunningAttempts returns a function that reports whether the attempt of a node with a UUID runs. It reads the attempts
// at its first call.
func (a *attemptTables) RunningAttempts(node string) func(uuid string) bool {
	var all map[string]bool
	return func(uuid string) bool {
		if all == nil {
			all = map[string]bool{}
			for row := range a.NodeAttempts(node) {
				if o := row.Observed; o != nil && !o.Gone && !o.State.Terminal() {
					all[o.UUID] = true
				}
			}
		}
		return all[uuid]
	}
}

// AttemptCount returns how many attempts have records.
func (a *attemptTables) AttemptCount() int { return a.rows }

// AllAttempts returns the attempts of all tasks, ordered by task id, then number, without those of packed tasks.
func (a *attemptTables) AllAttempts() iter.Seq[*AttemptRow] { return a.scanRows("") }

// scanRows returns the attempts of the tasks whose ids begin with the prefix.
func (a *attemptTables) scanRows(prefix string) iter.Seq[*AttemptRow] {
	return func(yield func(*AttemptRow) bool) {
		a.attempts.Ascend(cluster.TaskID(prefix), func(task cluster.TaskID, rows []*AttemptRow) bool {
			if !strings.HasPrefix(string(task), prefix) {
				return false
			}
			for _, r := range rows {
				if !yield(r) {
					return false
				}
			}
			return true
		})
	}
}

// findDesired returns no value for a record that cannot be decoded or is foreign.
func (a *attemptTables) findDesired(rest string) (Record, any, bool) {
	node, task, _ := strings.Cut(rest, "/")
	for row := range a.TaskAttempts(cluster.TaskID(task)) {
		switch {
		case row.Node != node || row.DesiredRev == 0:
		case row.IsUnreadable():
			return lastWritten(row.DesiredRev), nil, true
		default:
			return lastWritten(row.DesiredRev), row.Desired, true
		}
	}
	return Record{}, nil, false
}

// findObserved returns no value for a foreign record.
func (a *attemptTables) findObserved(rest string) (Record, any, bool) {
	node, task, _ := strings.Cut(rest, "/")
	for row := range a.TaskAttempts(cluster.TaskID(task)) {
		switch {
		case row.Node != node || row.ObservedRev == 0:
		case row.ForeignStatus || row.Observed == nil:
			return lastWritten(row.ObservedRev), nil, true
		default:
			return lastWritten(row.ObservedRev), row.Observed, true
		}
	}
	return Record{}, nil, false
}

func (a *attemptTables) findOutcome(rest string) (Record, any, bool) {
	task, number, _ := strings.Cut(rest, "/")
	n, err := strconv.Atoi(number)
	if err != nil {
		return Record{}, nil, false
	}
	row, ok := a.Attempt(cluster.TaskID(task), n)
	if !ok || row.OutcomeRev == 0 || row.Packed {
		return Record{}, nil, false
	}
	return lastWritten(row.OutcomeRev), row.Outcome, true
}

// lastWritten returns a record with only the revision of the last write.
func lastWritten(revision uint64) Record { return Record{Created: revision, Modified: revision} }

// deriveAttempts derives the tables that all records of attempts share.
func deriveAttempts(to, from *Snapshot, how derivation) {
	to.attempts, to.byNode = derivedSmall(from.attempts, how), derivedSmall(from.byNode, how)
	to.rows = from.rows
}

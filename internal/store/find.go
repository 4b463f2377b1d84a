package store

import (
	"strconv"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// The functions below find a record by its key after the noun: see kind.find.

func (s *Snapshot) findDefinition(rest string) (Record, any, bool) {
	name, version, _ := strings.Cut(rest, "/")
	n, err := strconv.Atoi(version)
	if err != nil {
		return Record{}, nil, false
	}
	return found(s.definitions.Get(definitionKey(cluster.Ref{Name: name, Version: n})))
}

func (s *Snapshot) findPlan(rest string) (Record, any, bool) {
	seq, err := strconv.ParseUint(rest, 10, 64)
	if err != nil {
		return Record{}, nil, false
	}
	return found(s.plans.Get(seq))
}

func (s *Snapshot) findOutcome(rest string) (Record, any, bool) {
	task, number, _ := strings.Cut(rest, "/")
	n, err := strconv.Atoi(number)
	if err != nil {
		return Record{}, nil, false
	}
	row, ok := s.Attempt(cluster.TaskID(task), n)
	if !ok || row.OutcomeRev == 0 {
		return Record{}, nil, false
	}
	return lastWritten(row.OutcomeRev), row.Outcome, true
}

// findDesired returns no value for a record that cannot be decoded or is foreign.
func (s *Snapshot) findDesired(rest string) (Record, any, bool) {
	node, task, _ := strings.Cut(rest, "/")
	for row := range s.TaskAttempts(cluster.TaskID(task)) {
		switch {
		case row.Node != node || row.DesiredRev == 0:
		case row.Unreadable:
			return lastWritten(row.DesiredRev), nil, true
		default:
			return lastWritten(row.DesiredRev), row.Desired, true
		}
	}
	return Record{}, nil, false
}

// findObserved returns no value for a foreign record.
func (s *Snapshot) findObserved(rest string) (Record, any, bool) {
	node, task, _ := strings.Cut(rest, "/")
	for row := range s.TaskAttempts(cluster.TaskID(task)) {
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

// lastWritten returns a record of which only the revision of the last write is known.
func lastWritten(revision uint64) Record { return Record{Created: revision, Modified: revision} }

package store

import (
	"fmt"

	"github.com/berthd/berth/internal/cluster"
)

// UsedDefinitions returns the versions of task definitions that are in use. Services, jobs, crons and attempts, also
// ended ones, use versions, and so do rollouts for the versions that they can go back to. A reference to the newest
// version counts as a reference to that version's number.
func (s *Snapshot) UsedDefinitions() map[cluster.Ref]bool {
	used := map[cluster.Ref]bool{}
	use := func(ref cluster.Ref) {
		if ref.Version == 0 {
			ref, _, _ = s.NewestDefinition(ref.Name)
		}
		used[ref] = true
	}
	steps := func(list []cluster.Step) {
		for i := range list {
			use(list[i].Definition)
		}
	}
	for e := range s.Services("") {
		use(e.Value.Definition)
	}
	for e := range s.Jobs("") {
		steps(e.Value.Steps)
	}
	for e := range s.Crons("") {
		if !e.Value.Deleted { // a deleted cron makes no more jobs
			steps(e.Value.Job.Steps)
		}
	}
	for e := range s.Rollouts() {
		use(e.Value.Definition)
		if e.Value.Healthy != nil {
			use(e.Value.Healthy.Definition)
		}
		for i := range e.Value.History {
			use(e.Value.History[i].Definition)
		}
	}
	for row := range s.AllAttempts() {
		if row.Desired != nil {
			use(row.Desired.Definition)
		}
		if row.Observed != nil {
			use(row.Observed.Definition)
		}
		if row.Outcome != nil {
			use(row.Outcome.Definition)
		}
	}
	return used
}

// KeptDefinition returns the message of the event for a deletion of a version that was taken back.
func KeptDefinition(ref cluster.Ref) string {
	return fmt.Sprintf("%s stays: its deletion was taken back", ref)
}

// Removed holds the writes that remove a version of a task definition, in one transaction, and the event that reports
// it.
type Removed struct {
	Writes []RecordWrite
	Event  cluster.Event
}

// RecordWrite writes or deletes one record if the record still has the given revision.
type RecordWrite struct {
	Key      string
	Modified uint64 // the expected revision of the record
	Record   any    // nil deletes it
}

// RemoveDefinition returns the writes that remove a version that is marked as deleted and that nothing refers to. If
// the version is the newest, the highest remaining version becomes the newest.
func (s *Snapshot) RemoveDefinition(prefix Prefix, e Entry[cluster.TaskDefinition]) Removed {
	ref := e.Value.Ref()
	r := Removed{
		Writes: []RecordWrite{{Key: prefix.Definition(ref), Modified: e.Modified}},
		Event: cluster.Event{
			Type: "definition.removed", Reason: cluster.ReasonDeleted,
			Message: fmt.Sprintf("%s: nothing refers to it", ref),
		},
	}
	newest, modified, ok := s.NewestDefinition(ref.Name)
	if !ok || newest != ref {
		return r
	}
	version := 0
	for other := range s.Definitions(ref.Name) {
		if other.Value.Version != ref.Version {
			version = max(version, other.Value.Version)
		}
	}
	pointer := RecordWrite{Key: prefix.NewestDefinition(ref.Name), Modified: modified}
	if version > 0 {
		pointer.Record = Newest{Name: ref.Name, Version: version}
	}
	r.Writes = append(r.Writes, pointer)
	return r
}

package store

import (
	"fmt"

	"github.com/berthd/berth/internal/cluster"
)

// UsedDefinitions returns the versions of task definitions that something refers to: services, jobs and crons, the
// versions that rollouts can go back to, and attempts, also those that have ended. A reference to the newest version
// counts as one to the version that it is.
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
		if !e.Value.Deleted { // it makes no job any more
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

// KeptDefinition is the message of the event that tells that the deletion of a version was taken back.
func KeptDefinition(ref cluster.Ref) string {
	return fmt.Sprintf("%s stays: its deletion was taken back", ref)
}

// Removed is what removes a version of a task definition. It is written in one transaction, with the event that tells
// of it.
type Removed struct {
	Writes []RecordWrite
	Event  cluster.Event
}

// RecordWrite writes one record, if its revision is still the named one.
type RecordWrite struct {
	Key      string
	Modified uint64 // the revision of the record that stands
	Record   any    // nil deletes it
}

// RemoveDefinition returns the writes that remove a version that is marked as deleted and that nothing refers to. Where
// it is the newest, the newest of the others takes its place.
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

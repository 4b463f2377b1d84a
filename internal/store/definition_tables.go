package store

import (
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// definitionTables hold the versions of task definitions.
type definitionTables struct {
	newest      table[Newest]
	definitions table[cluster.TaskDefinition]
}

// Definition returns a version of a task definition.
func (d *definitionTables) Definition(r cluster.Ref) (Entry[cluster.TaskDefinition], bool) {
	return d.definitions.Get(definitionKey(r))
}

// NewestDefinition returns a definition's newest version, and the revision of the record that names it.
func (d *definitionTables) NewestDefinition(name string) (cluster.Ref, uint64, bool) {
	e, ok := d.newest.Get(name)
	if !ok {
		return cluster.Ref{}, 0, false
	}
	return e.Value.Ref(), e.Modified, true
}

// Definitions returns all versions of a definition, or of all definitions where the name is empty.
func (d *definitionTables) Definitions(name string) iter.Seq[Entry[cluster.TaskDefinition]] {
	if name != "" {
		name += "/"
	}
	return scan(d.definitions, name)
}

func (d *definitionTables) findDefinition(rest string) (Record, any, bool) {
	name, version, _ := strings.Cut(rest, "/")
	n, err := strconv.Atoi(version)
	if err != nil {
		return Record{}, nil, false
	}
	return found(d.definitions.Get(definitionKey(cluster.Ref{Name: name, Version: n})))
}

func definitionKey(r cluster.Ref) string {
	n := strconv.Itoa(r.Version)
	if len(n) < 10 {
		n = "0000000000"[len(n):] + n
	}
	return r.Name + "/" + n
}

// Newest is the record task/<name>: the number of a definition's newest version. Writer: the user, by the API server.
type Newest struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
}

// Ref returns the reference to the newest version.
func (n Newest) Ref() cluster.Ref { return cluster.Ref{Name: n.Name, Version: n.Version} }

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
	for e := range s.AllPackedTasks() {
		use(e.Value.Definition)
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
	if since := e.Value.Unused; !since.IsZero() {
		r.Event.Message = fmt.Sprintf("%s: nothing has referred to it since %s", ref, since.Format(time.RFC3339))
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

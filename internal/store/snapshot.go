package store

import "github.com/berthd/berth/internal/cluster"

// Snapshot is the state of a domain at one revision. It never changes; reading it takes no lock and disturbs nobody.
// All sequences are ordered by name. Its tables are in groups by subject, whose methods are methods of a Snapshot.
type Snapshot struct {
	revision uint64

	definitionTables
	workloadTables
	fleetTables
	serverTables
	secretTables
	eventTables
	planTables
	attemptTables
}

// newSnapshot returns an empty snapshot.
func newSnapshot() *Snapshot { return new(Snapshot).derive(asNew) }

// publish returns an immutable snapshot that shares its data with s; s may be changed further.
func (s *Snapshot) publish() *Snapshot { return s.derive(asPublished) }

// fork returns a mutable copy of an immutable snapshot. The copy shares its data with s until it is changed.
func (s *Snapshot) fork() *Snapshot { return s.derive(asFork) }

// derive returns a snapshot of the same revision whose tables follow from those of s.
func (s *Snapshot) derive(how derivation) *Snapshot {
	to := &Snapshot{revision: s.revision}
	for i := range kinds {
		if kinds[i].derive != nil {
			kinds[i].derive(to, s, how)
		}
	}
	return to
}

// Revision returns the engine's revision that the snapshot is at: it holds every write up to it.
func (s *Snapshot) Revision() uint64 { return s.revision }

// Lacks returns a message if a task waits for a secret that does not exist. The message names the secret and says how
// to create it. Lacks returns "" if no secret is missing.
func (s *Snapshot) Lacks(p *cluster.Pending) string {
	d, ok := s.Definition(p.Definition)
	if !ok {
		return ""
	}
	name := s.MissingSecret(p.Owner.Cluster, d.Value)
	if name == "" {
		return ""
	}
	return cluster.NoSecret(p.Owner.Cluster, name)
}

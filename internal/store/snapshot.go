package store

import (
	"iter"

	"github.com/berthd/berth/internal/cluster"
)

// Snapshot is the state of a domain at one revision. It never changes; reading it takes no lock and disturbs no writer.
// All sequences are ordered by name. Its tables are in groups by subject, whose methods are methods of a Snapshot.
type Snapshot struct {
	revision uint64
	wentBack uint64 // see WentBack

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
	to := &Snapshot{revision: s.revision, wentBack: s.wentBack}
	for i := range kinds {
		if kinds[i].derive != nil {
			kinds[i].derive(to, s, how)
		}
	}
	return to
}

// Revision returns the engine's revision that the snapshot is at: it holds every write up to it.
func (s *Snapshot) Revision() uint64 { return s.revision }

// WentBack returns a revision if the data of the store went back to an earlier state under these tables (P1.7), else 0.
// A record with a higher revision was written after the last time that this happened.
func (s *Snapshot) WentBack() uint64 { return s.wentBack }

// MissingSecretHold returns the hold of a task whose secret does not exist. Its message names the secret and says how
// to create it. The hold is zero if no secret is missing.
func (s *Snapshot) MissingSecretHold(p *cluster.Pending) cluster.Hold {
	d, ok := s.Definition(p.Definition)
	if !ok {
		return cluster.Hold{}
	}
	name := s.MissingSecret(p.Owner.Cluster, d.Value)
	if name == "" {
		return cluster.Hold{}
	}
	return cluster.Hold{Reason: cluster.ReasonSecret, Message: cluster.NoSecret(p.Owner.Cluster, name)}
}

// ParametersOf returns the parameters of a task by name, nil if it has none. It returns false for a task of a job that
// is gone or has begun anew, whose values are unknown.
func (s *Snapshot) ParametersOf(p cluster.TaskParts) (map[string]string, bool) {
	if p.Step == "" {
		return nil, true
	}
	job, ok := s.Job(p.Cluster, p.Owner)
	if !ok || job.Value.Generation != p.Generation {
		return nil, false
	}
	step := job.Value.Step(p.Step)
	if step == nil {
		return nil, true
	}
	return step.Parameters.Of(p.Index), true
}

// Pool returns the settings of a pool, if it has any.
func (s *Snapshot) Pool(name string) (Entry[cluster.Pool], bool) { return s.pools.Get(name) }

// Pools returns all pools that have settings, by name.
func (s *Snapshot) Pools() iter.Seq[Entry[cluster.Pool]] { return scan(s.pools, "") }

// Strategy returns the strategy for tasks of a cluster with a placement. The placement's own strategy takes precedence
// over the strategy of its pool, and the pool's over the cluster's. It is "" if none is set.
func (s *Snapshot) Strategy(name string, p *cluster.Placement) cluster.Strategy {
	if p.Strategy != "" {
		return p.Strategy
	}
	if p.Pool != "" {
		if e, ok := s.Pool(p.Pool); ok && e.Value.Strategy != "" {
			return e.Value.Strategy
		}
	}
	if c, ok := s.Cluster(name); ok {
		return c.Value.Strategy
	}
	return ""
}

// QueuePolicy returns the policy by which tasks of a cluster that name a pool wait. The pool is "" for tasks that name
// none.
func (s *Snapshot) QueuePolicy(name, pool string) cluster.QueuePolicy {
	var p *cluster.Pool
	if pool != "" {
		e, _ := s.Pool(pool)
		p = e.Value
	}
	c, _ := s.Cluster(name)
	return cluster.QueuePolicyOf(p, c.Value)
}

// PlansWritten returns the number of plan records that the leaders of all present domains have written.
func (s *Snapshot) PlansWritten() (n uint64) {
	for _, name := range s.Domains() {
		if number, ok := s.DomainNumber(name); ok {
			n += s.LastPlan(number) - cluster.FirstPlan(number)
		}
	}
	return n
}

// WantedDomain returns the domain that the operator gave a node to: the one in the settings of the node, else the one
// of the node's pool, else the default domain. Settings of earlier builds always name the default domain, so that name
// counts like no name.
func (s *Snapshot) WantedDomain(node string) string {
	h, ok := s.Host(node)
	switch {
	case !ok:
		return cluster.DefaultDomain
	case h.Value.Domain != "" && h.Value.Domain != cluster.DefaultDomain:
		return h.Value.Domain
	}
	if owner := s.PoolDomain(h.Value.Pool); owner != "" {
		return owner
	}
	return cluster.DefaultDomain
}

// NextGeneration returns the generation for the next version of a service, or for the next run of a job. The generation
// is above that of the record and of all attempts that still exist under the name. Attempts of an earlier object of
// that name count too, so that no task id is used twice. Without a record and attempts it is 1.
func (s *Snapshot) NextGeneration(o cluster.OwnerRef) uint64 {
	highest := uint64(0)
	switch e, isJob := s.Job(o.Cluster, o.Name); {
	case o.Kind == cluster.KindJob && isJob:
		highest = e.Value.Generation
	case o.Kind == cluster.KindService:
		if e, ok := s.Service(o.Cluster, o.Name); ok {
			highest = e.Value.Generation
		}
		if e, ok := s.Rollout(o.Cluster, o.Name); ok {
			highest = max(highest, e.Value.Generation)
		}
	}
	for row := range s.Attempts(o) {
		if parts, ok := row.Task.Parts(); ok {
			highest = max(highest, parts.Generation)
		}
	}
	for e := range s.PackedTasks(o) {
		highest = max(highest, e.Value.Generation)
	}
	return highest + 1
}

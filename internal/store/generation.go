package store

import "github.com/berthd/berth/internal/cluster"

// NextGeneration returns the generation for the next version of a service, or for the next run of a job. The generation
// is above that of the record and of all attempts that still stand under the name. Attempts of an earlier object of
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
	return highest + 1
}

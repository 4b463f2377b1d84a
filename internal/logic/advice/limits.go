package advice

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
)

// raiseLimits raises the limits that keep tasks from being placed together, as little as suffices. It changes the
// tasks, and the quota of their cluster in the fleet until undo is called.
func (s *search) raiseLimits(tasks []cluster.Pending) (changes []cluster.Remedy, undo func()) {
	name := tasks[0].Owner.Cluster
	was := s.fleet.Limits.Quotas()[name]
	draft, concurrency := admission.NewDraft(&s.fleet.Limits), 0
	quota := was
	for i := range tasks {
		q, limit := draft.Sufficient(&tasks[i])
		if q != nil {
			quota = q
			s.fleet.Limits.SetQuota(name, q)
		}
		concurrency = max(concurrency, limit)
		draft.Add(&tasks[i], 1)
	}
	if quota != was {
		changes = append(changes, quotaRaised(name, was, quota))
	}
	if concurrency > 0 {
		changes = append(changes, concurrencyRaised(tasks[0].Concurrency.Group, concurrency))
		for i := range tasks {
			toTask(&changes[len(changes)-1], &tasks[i])
		}
	}
	return changes, func() { s.fleet.Limits.SetQuota(name, was) }
}

package advice

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
)

// raiseLimits raises the limits that keep the first tasks, a number of them, from being placed together, as little as
// suffices. It changes all tasks, and the quota of their cluster in the fleet until undo is called.
func (s *search) raiseLimits(tasks []cluster.Pending, number int) (changes []cluster.Remedy, undo func()) {
	name := tasks[0].Owner.Cluster
	was := s.fleet.Limits.Quotas()[name]
	draft, quota, concurrency := admission.NewDraft(&s.fleet.Limits), was, 0
	for i := range tasks[:min(number, len(tasks))] {
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
		change := concurrencyRaised(tasks[0].Concurrency.Group, concurrency)
		changes = append(changes, change)
		for i := range tasks {
			toTask(&change, &tasks[i])
		}
	}
	return changes, func() { s.fleet.Limits.SetQuota(name, was) }
}

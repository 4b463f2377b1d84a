package advice

import (
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/admission"
)

// raiseLimits raises the limits that keep the first tasks, a number of them, from being placed together, as little as
// suffices. It changes all tasks, and the quota of their cluster in the fleet until undo is called.
func (s *search) raiseLimits(tasks []cluster.Pending, number int) (changes []cluster.Remedy, undo func()) {
	name := tasks[0].Owner.Cluster
	was := s.fleet.Limits.Quotas()[name]
	draft, quota := admission.NewDraft(&s.fleet.Limits), was
	ofTasks, ofJobs := 0, 0
	for i := range tasks[:min(number, len(tasks))] {
		q, inGroup, jobs := draft.Sufficient(&tasks[i])
		if q != nil {
			quota = q
			s.fleet.Limits.SetQuota(name, q)
		}
		ofTasks, ofJobs = max(ofTasks, inGroup), max(ofJobs, jobs)
		draft.Add(&tasks[i], 1)
	}
	if ofTasks > 0 {
		changes = append(changes, concurrencyRaised(tasks[0].Concurrency.Group, ofTasks))
	}
	if ofJobs > 0 {
		changes = append(changes, jobConcurrencyRaised(tasks[0].JobConcurrency.Group, ofJobs))
	}
	for c := range changes {
		for i := range tasks {
			toTask(&changes[c], &tasks[i])
		}
	}
	if quota != was {
		changes = slices.Insert(changes, 0, quotaRaised(name, was, quota))
	}
	return changes, func() { s.fleet.Limits.SetQuota(name, was) }
}

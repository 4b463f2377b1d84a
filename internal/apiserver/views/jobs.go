package views

import (
	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// Job shows a job with its status.
func (b *Builder) Job(e store.Entry[cluster.Job]) api.JobView {
	b = b.Of(e.Value.Cluster)
	st := reconciler.StatusOfJob(b.JobInput(e))
	v := api.JobView{
		Job: *e.Value, Revision: e.Modified,
		Status: api.JobStatus{
			TaskCounts: api.TaskCounts(st.TaskCounts), State: st.State, Finished: st.Finished,
			Message: b.withReason(st.Message, e.Value.Owner(), st.Pending), Unmet: st.Unmet,
		},
	}
	for i := range st.Steps {
		s := &st.Steps[i]
		v.Status.Steps = append(v.Status.Steps, api.StepStatus{
			Name: s.Name, TaskCounts: api.TaskCounts(s.TaskCounts), State: s.State, Message: s.Message,
		})
	}
	return v
}

// nextMoments is how many moments a view of a cron lists.
const nextMoments = 5

// Cron shows a cron with its jobs and its next moments.
func (b *Builder) Cron(e store.Entry[cluster.Cron]) api.CronView {
	c := e.Value
	v := api.CronView{Cron: *c, Revision: e.Modified, Status: api.CronStatus{State: api.CronWaiting}}
	st := &v.Status
	if fired, ok := b.Snapshot.Fired(c.Cluster, c.Name); ok {
		st.Last, st.Job, st.Made, st.Message = fired.Value.Last, fired.Value.Job, fired.Value.Made, fired.Value.Message
	}
	for job := range b.Snapshot.CronJobs(c.Cluster, c.Name) {
		switch reconciler.StatusOfJob(b.JobInput(job)).State {
		case cluster.JobSucceeded:
			st.Succeeded++
		case cluster.JobFailed, cluster.JobCancelled:
			st.Failed++
		case cluster.JobDeleting:
		default:
			st.Running = append(st.Running, job.Value.Name)
		}
	}
	switch {
	case c.Suspended:
		st.State = api.CronSuspended
	case len(st.Running) > 0:
		st.State = api.CronRunning
	}
	if !c.Suspended {
		st.Next = draft.NextOf(c, b.Domain.Now, nextMoments)
	}
	return v
}

// SteadyCron returns a cron's view without the fields that change all the time.
func SteadyCron(v api.CronView) api.CronView {
	v.Status.Next = nil
	return v
}

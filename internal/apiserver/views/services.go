package views

import (
	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

func (l *Builder) Service(e store.Entry[cluster.Service]) api.ServiceView {
	in := l.ServiceInput(e)
	st := reconciler.StatusOfService(in)
	return api.ServiceView{
		Service: *e.Value, Revision: e.Modified,
		Status: api.ServiceStatus{
			Desired: st.Desired, Running: st.Running, Healthy: st.Healthy, Updated: st.Updated,
			Waiting: st.Waiting, State: st.State, Message: l.why(e.Value.Owner(), st.Message, st.Waiting),
			Versions: l.versions(e.Value, st.Desired), Rollout: st.Rollout, RolloutMessage: st.RolloutMessage,
			Paused: st.Paused, Crashing: l.crashing(in.Owner, st.CrashLooping), GivenUp: st.GivenUp,
			MemoryTrouble: st.MemoryTrouble,
		},
	}
}

func (l *Builder) Job(e store.Entry[cluster.Job]) api.JobView {
	st := reconciler.StatusOfJob(l.JobInput(e))
	return api.JobView{
		Job: *e.Value, Revision: e.Modified,
		Status: api.JobStatus{
			Total: st.Total, Pending: st.Pending, Running: st.Running, Succeeded: st.Succeeded,
			Failed: st.Failed, Cancelled: st.Cancelled, State: st.State, Finished: st.Finished,
			Message: l.why(e.Value.Owner(), st.Message, st.Pending),
		},
	}
}

// nextMoments is how many moments a view of a cron names.
const nextMoments = 5

func (l *Builder) Cron(e store.Entry[cluster.Cron]) api.CronView {
	c := e.Value
	v := api.CronView{Cron: *c, Revision: e.Modified, Status: api.CronStatus{State: "waiting"}}
	st := &v.Status
	if fired, ok := l.Snapshot.Fired(c.Cluster, c.Name); ok {
		st.Last, st.Job, st.Made, st.Message = fired.Value.Last, fired.Value.Job, fired.Value.Made, fired.Value.Message
	}
	for job := range l.Snapshot.CronJobs(c.Cluster, c.Name) {
		switch status := reconciler.StatusOfJob(l.JobInput(job)); status.State {
		case reconciler.Succeeded:
			st.Succeeded++
		case reconciler.Failed, reconciler.Cancelled:
			st.Failed++
		case reconciler.Deleting:
		default:
			st.Running = append(st.Running, job.Value.Name)
		}
	}
	switch {
	case c.Suspended:
		st.State = "suspended"
	case len(st.Running) > 0:
		st.State = "running"
	}
	if !c.Suspended {
		st.Next = draft.NextOf(c, l.Domain.Now, nextMoments)
	}
	return v
}

// SteadyCron returns a cron's view without what changes all the time.
func SteadyCron(v api.CronView) api.CronView {
	v.Status.Next = nil
	return v
}

package apiserver

import (
	"net/http"
	"reflect"
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// cronsAPI lists, reads, writes, suspends and runs crons.
type cronsAPI struct{ workloads }

// nextMoments is how many moments a view of a cron names.
const nextMoments = 5

func (a *cronsAPI) routes() []route {
	const list, one = "/v1/clusters/{cluster}/crons", "/v1/clusters/{cluster}/crons/{cron}"
	page, view := reflect.TypeFor[api.Page[api.CronView]](), reflect.TypeFor[api.CronView]()
	return []route{
		{
			method: "GET", path: "/v1/crons", name: "listAllCrons", role: cluster.RoleViewer, shared: true,
			summary: "The crons of all clusters.", query: listParameters(), reply: page, stream: eventStream,
			long: true, serve: a.crons().list,
		},
		{
			method: "GET", path: list, name: "listCrons", role: cluster.RoleViewer, summary: "The crons of a cluster.",
			query: listParameters(), reply: page, stream: eventStream, long: true, serve: a.crons().list,
		},
		{
			method: "GET", path: one, name: "readCron", role: cluster.RoleViewer,
			summary: "One cron with its next moments and its jobs.", query: []parameter{consistent()}, reply: view,
			serve: a.crons().read,
		},
		{
			method: "PUT", path: one, name: "writeCron", role: cluster.RoleSubmitter,
			summary: "Makes or changes a cron. Jobs that it made already stay as they are.", writes: true,
			body: reflect.TypeFor[cluster.Cron](), reply: view, serve: a.crons().write,
		},
		{
			method: "DELETE", path: one, name: "deleteCron", role: cluster.RoleSubmitter,
			summary: "Deletes a cron. Its jobs stay, and run to their end.", writes: true, status: http.StatusNoContent,
			serve: a.deleteCron,
		},
		{
			method: "POST", path: one + "/run", name: "runCron", role: cluster.RoleSubmitter,
			summary: "Makes a job at once, whatever the schedule says.", writes: true, status: http.StatusCreated,
			reply: reflect.TypeFor[api.JobView](), serve: a.runCron,
		},
		{
			method: "POST", path: one + "/suspend", name: "suspendCron", role: cluster.RoleSubmitter,
			summary: "Has a cron make no jobs.", writes: true, reply: view, serve: a.suspendCron(true),
		},
		{
			method: "POST", path: one + "/resume", name: "resumeCron", role: cluster.RoleSubmitter,
			summary: "Has a suspended cron go on; its policy for missed moments says what becomes of those " +
				"that passed.", writes: true, reply: view, serve: a.suspendCron(false),
		},
	}
}

func (a *cronsAPI) crons() workload[cluster.Cron, *cluster.Cron, api.CronView] {
	return workload[cluster.Cron, *cluster.Cron, api.CronView]{
		workloads: a.workloads, noun: "cron",
		key:  func(p store.Prefix, c *cluster.Cron) string { return p.Cron(c.Cluster, c.Name) },
		all:  (*store.Snapshot).Crons,
		one:  (*store.Snapshot).Cron,
		head: func(c *cluster.Cron) head { return head{&c.Cluster, &c.Name, &c.Lifespan} },
		set:  (*draft).setCron,
		view: (*look).cronView,

		topics: store.TopicCrons | store.TopicOwners | store.TopicClusters, touched: changedCrons,
	}
}

func (l *look) cronView(e store.Entry[cluster.Cron]) api.CronView {
	c := e.Value
	v := api.CronView{Cron: *c, Revision: e.Modified, Status: api.CronStatus{State: "waiting"}}
	st := &v.Status
	if fired, ok := l.snap.Fired(c.Cluster, c.Name); ok {
		st.Last, st.Job, st.Made, st.Message = fired.Value.Last, fired.Value.Job, fired.Value.Made, fired.Value.Message
	}
	for job := range l.snap.CronJobs(c.Cluster, c.Name) {
		switch status := reconciler.StatusOfJob(l.job(job)); status.State {
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
		st.Next = nextOf(c, l.now, nextMoments)
	}
	return v
}

// deleteCron removes a cron. Nothing runs for it itself, so it goes at once; what the control plane remembers of it
// follows.
func (a *cronsAPI) deleteCron(w http.ResponseWriter, r *http.Request) error {
	in, name := a.crons().named(r)
	pre, err := preconditionOf(r)
	if err != nil {
		return err
	}
	_, err = a.writer.write(r.Context(), func(d *draft) error {
		e, ok := d.snap.Cron(in, name)
		if err := pre.check(e.Modified); err != nil {
			return err
		}
		if !ok {
			return notFound("cron", in+"/"+name)
		}
		d.remove(d.prefix.Cron(in, name), e.Modified, cluster.Event{
			Type: "cron.deleted", Cluster: in,
			Owner:  &cluster.OwnerRef{Kind: cluster.KindCron, Cluster: in, Name: name},
			Reason: cluster.ReasonDeleted, Message: "the user deleted it",
		})
		return nil
	})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *cronsAPI) suspendCron(suspend bool) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		return a.crons().change(w, r, func(d *draft, c *cluster.Cron) (bool, error) {
			write := c.Suspended != suspend
			if write && !suspend {
				if err := d.still(c.Cluster, d.permittedSteps(c.Cluster, c.Job.Steps, "job.steps")); err != nil {
					return false, err
				}
			}
			c.Suspended = suspend
			return write, nil
		})
	}
}

// runCron makes a job of a cron for now, also of one that is suspended or whose last job still runs.
func (a *cronsAPI) runCron(w http.ResponseWriter, r *http.Request) error {
	in, name := a.crons().named(r)
	pre, err := preconditionOf(r)
	if err != nil {
		return err
	}
	mine := written[cluster.Job]{}
	snap, err := a.writer.write(r.Context(), func(d *draft) error {
		e, ok := d.snap.Cron(in, name)
		if err := pre.check(e.Modified); err != nil {
			return err
		}
		if !ok {
			return notFound("cron", in+"/"+name)
		}
		d.require(d.prefix.Cron(in, name), e.Modified)
		job, err := jobNow(d, e.Value)
		if err != nil {
			return err
		}
		mine = written[cluster.Job]{job, d}
		_, err = d.setJob(job, precondition{})
		job.Cron, job.At = e.Value.Name, d.now
		d.events = append(d.events, cluster.Event{
			Type: "cron.fired", Cluster: in, Owner: &cluster.OwnerRef{Kind: cluster.KindCron, Cluster: in, Name: name},
			Reason: cluster.ReasonSchedule, Message: "job " + job.Name + " was made because the user asked for it",
		})
		return asProblem(err)
	})
	if err != nil {
		return err
	}
	exchangeOf(r.Context()).object = "Job " + in + "/" + mine.object.Name
	e := store.Entry[cluster.Job]{Value: mine.object, Modified: mine.draft.revision}
	tag(w, e.Modified)
	return answer(w, http.StatusCreated, a.look(snap).jobView(e))
}

// jobNow returns a job of a cron for now. Its name has the minute, as those that the schedule makes; where that is
// taken the seconds too.
func jobNow(d *draft, c *cluster.Cron) (*cluster.Job, error) {
	name := c.JobName(d.now)
	if isOwnerName(d, c.Cluster, name) {
		seconds := "-" + d.now.UTC().Format("20060102150405")
		name = c.Name[:min(len(c.Name), cluster.MaxName-len(seconds))] + seconds
	}
	if isOwnerName(d, c.Cluster, name) {
		return nil, problemf(http.StatusConflict, "a job of cron %s/%s was made in this very second, %s: ask again",
			c.Cluster, c.Name, name)
	}
	job := &cluster.Job{
		Cluster: c.Cluster, Name: name, Labels: c.Job.Labels, Steps: slices.Clone(c.Job.Steps),
		Priority: c.Job.Priority,
	}
	job.SetDefaults()
	return job, nil
}

// taken reports whether a name is one of a service or a job.
func isOwnerName(d *draft, in, name string) bool {
	_, job := d.snap.Job(in, name)
	_, service := d.snap.Service(in, name)
	return job || service
}

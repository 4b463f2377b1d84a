package workload

import (
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// CronsAPI lists, reads, writes, suspends and runs crons.
type CronsAPI struct{ Common }

// Routes returns the operations of crons.
func (a *CronsAPI) Routes() []route.Route {
	const one = "/v1/clusters/{cluster}/crons/{cron}"
	view := reflect.TypeFor[api.CronView]()
	return append(a.crons().listRoutes("Crons"), []route.Route{
		{
			Method: "GET", Path: one, Name: "readCron", Role: cluster.RoleViewer,
			Summary: "One cron with its next moments and its jobs.", Query: []route.Parameter{route.Consistent()},
			Reply: view,
			Serve: a.crons().read,
		},
		{
			Method: "PUT", Path: one, Name: "writeCron", Role: cluster.RoleSubmitter,
			Summary: "Makes or changes a cron. Jobs that it made already stay as they are.", Writes: true,
			Body: reflect.TypeFor[cluster.Cron](), Reply: view, Serve: a.crons().write,
		},
		{
			Method: "DELETE", Path: one, Name: "deleteCron", Role: cluster.RoleSubmitter,
			Summary: "Deletes a cron. Its jobs stay, and run to their end.", Writes: true, Status: http.StatusNoContent,
			Serve: a.deleteCron,
		},
		{
			Method: "POST", Path: one + "/run", Name: "runCron", Role: cluster.RoleSubmitter,
			Summary: "Makes a job immediately, whatever the schedule says.", Writes: true, Status: http.StatusCreated,
			Reply: reflect.TypeFor[api.JobView](), Serve: a.runCron,
		},
		{
			Method: "POST", Path: one + "/suspend", Name: "suspendCron", Role: cluster.RoleSubmitter,
			Summary: "Suspends a cron: it makes no jobs.", Writes: true, Reply: view, Serve: a.suspendCron(true),
		},
		{
			Method: "POST", Path: one + "/resume", Name: "resumeCron", Role: cluster.RoleSubmitter,
			Summary: "Resumes a suspended cron. Its policy for missed moments decides about those that passed.",
			Writes:  true, Reply: view, Serve: a.suspendCron(false),
		},
	}...)
}

func (a *CronsAPI) crons() resource[cluster.Cron, *cluster.Cron, api.CronView] {
	return resource[cluster.Cron, *cluster.Cron, api.CronView]{
		Common: a.Common, noun: "cron",
		key:  func(p store.Prefix, c *cluster.Cron) string { return p.Cron(c.Cluster, c.Name) },
		all:  (*store.Snapshot).Crons,
		one:  (*store.Snapshot).Cron,
		head: func(c *cluster.Cron) head { return head{&c.Cluster, &c.Name, c.Labels, &c.Lifespan} },
		set:  (*draft.Draft).SetCron,
		view: (*views.Builder).Cron,
		show: (*access.Caller).ShowCron,

		topics: store.TopicCrons | store.TopicOwners | store.TopicClusters, touched: changedCrons,
		steady: views.SteadyCron,
	}
}

// deleteCron removes a cron immediately, because no tasks belong to the cron itself. The control plane removes its
// other records.
func (a *CronsAPI) deleteCron(w http.ResponseWriter, r *http.Request) error {
	in, name := a.crons().named(r)
	return a.Writer.ServeDelete(w, r, func(d *draft.Draft, pre draft.Precondition) error {
		e, ok := d.Snap.Cron(in, name)
		if err := pre.Check(e.Modified); err != nil {
			return err
		}
		if !ok {
			return respond.NotFound("cron", in+"/"+name)
		}
		d.Remove(d.Prefix.Cron(in, name), e.Modified, cluster.Event{
			Type: "cron.deleted", Cluster: in,
			Owner:  &cluster.OwnerRef{Kind: cluster.KindCron, Cluster: in, Name: name},
			Reason: cluster.ReasonDeleted, Message: "the user deleted it",
		})
		return nil
	})
}

func (a *CronsAPI) suspendCron(suspend bool) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		return a.crons().change(w, r, func(d *draft.Draft, c *cluster.Cron) (bool, error) {
			write := c.Suspended != suspend
			if write && !suspend {
				if err := d.RequirePermissions(c.Cluster,
					d.CheckStepPermissions(c.Cluster, c.Job.Steps, "job.steps")); err != nil {
					return false, err
				}
			}
			c.Suspended = suspend
			return write, nil
		})
	}
}

// runCron makes a job of a cron now, even if the cron is suspended or its last job runs.
func (a *CronsAPI) runCron(w http.ResponseWriter, r *http.Request) error {
	in, name := a.crons().named(r)
	pre, err := draft.PreconditionOf(r)
	if err != nil {
		return err
	}
	mine := written[cluster.Job]{}
	snap, err := a.Writer.Write(r.Context(), func(d *draft.Draft) error {
		e, ok := d.Snap.Cron(in, name)
		if err := pre.Check(e.Modified); err != nil {
			return err
		}
		if !ok {
			return respond.NotFound("cron", in+"/"+name)
		}
		d.Require(d.Prefix.Cron(in, name), e.Modified)
		job, err := jobNow(d, e.Value)
		if err != nil {
			return err
		}
		mine = written[cluster.Job]{job, d}
		_, err = d.SetJob(job, draft.Precondition{})
		job.Cron, job.At = e.Value.Name, d.Now
		d.Events = append(d.Events, cluster.Event{
			Type: "cron.fired", Cluster: in, Owner: &cluster.OwnerRef{Kind: cluster.KindCron, Cluster: in, Name: name},
			Reason: cluster.ReasonSchedule, Message: "job " + job.Name + " was made on the user's request",
		})
		return draft.AsProblem(err)
	})
	if err != nil {
		return err
	}
	access.ExchangeOf(r.Context()).Object = "Job " + in + "/" + mine.object.Name
	e := store.Entry[cluster.Job]{Value: mine.object, Modified: mine.draft.Revision}
	respond.SetETag(w, e.Modified)
	return respond.JSON(w, http.StatusCreated, a.jobs().shown(r, snap, e))
}

// jobNow returns a job of a cron for now. Its name contains the minute, as the names of scheduled jobs do, and also the
// seconds if that name is taken.
func jobNow(d *draft.Draft, c *cluster.Cron) (*cluster.Job, error) {
	name := c.JobName(d.Now)
	if isOwnerName(d, c.Cluster, name) {
		seconds := "-" + d.Now.UTC().Format("20060102150405")
		name = c.Name[:min(len(c.Name), cluster.MaxName-len(seconds))] + seconds
	}
	if isOwnerName(d, c.Cluster, name) {
		return nil,
			respond.Problemf(http.StatusConflict, "cron %s/%s made the job %s in this second: retry",
				c.Cluster, c.Name, name)
	}
	job := c.NewJob(name)
	job.SetDefaults()
	return job, nil
}

// isOwnerName reports whether a service or a job has the name.
func isOwnerName(d *draft.Draft, in, name string) bool {
	_, job := d.Snap.Job(in, name)
	_, service := d.Snap.Service(in, name)
	return job || service
}

package workload

import (
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
)

// JobsAPI lists, reads, writes, cancels and restarts jobs.
type JobsAPI struct{ Common }

func (a *JobsAPI) stopJob(w http.ResponseWriter, r *http.Request) error {
	return a.jobs().change(w, r, func(_ *draft.Draft, job *cluster.Job) (bool, error) {
		write := !job.Cancelled
		job.Cancelled = true
		return write, nil
	})
}

func (a *JobsAPI) restartJob(w http.ResponseWriter, r *http.Request) error {
	return a.jobs().change(w, r, func(d *draft.Draft, job *cluster.Job) (bool, error) {
		job.Cancelled = false
		job.Generation = d.Snap.NextGeneration(job.Owner())
		return true, d.RequirePermissions(job.Cluster, d.CheckStepPermissions(job.Cluster, job.Steps, "steps"))
	})
}

// Routes returns the operations of jobs.
func (a *JobsAPI) Routes() []route.Route {
	const list, one = "/v1/clusters/{cluster}/jobs", "/v1/clusters/{cluster}/jobs/{job}"
	page, view := reflect.TypeFor[api.Page[api.JobView]](), reflect.TypeFor[api.JobView]()
	return []route.Route{
		{
			Method: "GET", Path: "/v1/jobs", Name: "listAllJobs", Role: cluster.RoleViewer, Shared: true,
			Summary: "The jobs of all clusters.", Query: route.ListParameters(route.ByName()), Reply: page,
			Stream: route.MediaEventStream, Long: true,
			Serve: a.jobs().list,
		},
		{
			Method: "GET", Path: list, Name: "listJobs", Role: cluster.RoleViewer, Summary: "The jobs of a cluster.",
			Query: route.ListParameters(route.ByName()), Reply: page, Stream: route.MediaEventStream, Long: true,
			Serve: a.jobs().list,
		},
		{
			Method: "GET", Path: one, Name: "readJob", Role: cluster.RoleViewer, Summary: "One job with its status.",
			Query: []route.Parameter{route.Consistent()}, Reply: view, Serve: a.jobs().read,
		},
		{
			Method: "PUT", Path: one, Name: "writeJob", Role: cluster.RoleSubmitter,
			Summary: "Makes or changes a job; other steps run it again.", Writes: true,
			Body:  reflect.TypeFor[cluster.Job](),
			Reply: view, Serve: a.jobs().write,
		},
		{
			Method: "DELETE", Path: one, Name: "deleteJob", Role: cluster.RoleSubmitter,
			Summary: "Deletes a job: its tasks are stopped, then it is gone.", Writes: true,
			Status: http.StatusAccepted, Reply: view, Serve: a.jobs().delete,
		},
		{
			Method: "POST", Path: one +
				"/stop", Name: "stopJob", Role: cluster.RoleSubmitter, Summary: "Cancels a job.", Writes: true,
			Reply: view, Serve: a.stopJob,
		},
		{
			Method: "POST", Path: one + "/restart", Name: "restartJob", Role: cluster.RoleSubmitter,
			Summary: "Runs a job again, from its first step.", Writes: true, Reply: view, Serve: a.restartJob,
		},
	}
}

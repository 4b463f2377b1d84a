package apiserver

import (
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// jobsAPI lists, reads, writes, cancels and restarts jobs.
type jobsAPI struct{ workloads }

func (a *jobsAPI) stopJob(w http.ResponseWriter, r *http.Request) error {
	return a.jobs().change(w, r, func(_ *draft, job *cluster.Job) (bool, error) {
		write := !job.Cancelled
		job.Cancelled = true
		return write, nil
	})
}

func (a *jobsAPI) restartJob(w http.ResponseWriter, r *http.Request) error {
	return a.jobs().change(w, r, func(d *draft, job *cluster.Job) (bool, error) {
		job.Cancelled = false
		job.Generation = d.snap.NextGeneration(job.Owner())
		return true, d.still(job.Cluster, d.permittedSteps(job.Cluster, job.Steps, "steps"))
	})
}

func (a *jobsAPI) routes() []route {
	const list, one = "/v1/clusters/{cluster}/jobs", "/v1/clusters/{cluster}/jobs/{job}"
	page, view := reflect.TypeFor[api.Page[api.JobView]](), reflect.TypeFor[api.JobView]()
	return []route{
		{
			method: "GET", path: "/v1/jobs", name: "listAllJobs", role: cluster.RoleViewer, shared: true,
			summary: "The jobs of all clusters.", query: listParameters(), reply: page, stream: eventStream, long: true,
			serve: a.jobs().list,
		},
		{
			method: "GET", path: list, name: "listJobs", role: cluster.RoleViewer, summary: "The jobs of a cluster.",
			query: listParameters(), reply: page, stream: eventStream, long: true, serve: a.jobs().list,
		},
		{
			method: "GET", path: one, name: "readJob", role: cluster.RoleViewer, summary: "One job with its status.",
			query: []parameter{consistent()}, reply: view, serve: a.jobs().read,
		},
		{
			method: "PUT", path: one, name: "writeJob", role: cluster.RoleSubmitter,
			summary: "Makes or changes a job; other steps run it anew.", writes: true,
			body:  reflect.TypeFor[cluster.Job](),
			reply: view, serve: a.jobs().write,
		},
		{
			method: "DELETE", path: one, name: "deleteJob", role: cluster.RoleSubmitter,
			summary: "Deletes a job: its tasks are stopped, then it is gone.", writes: true,
			status: http.StatusAccepted, reply: view, serve: a.jobs().delete,
		},
		{
			method: "POST", path: one +
				"/stop", name: "stopJob", role: cluster.RoleSubmitter, summary: "Cancels a job.", writes: true,
			reply: view, serve: a.stopJob,
		},
		{
			method: "POST", path: one + "/restart", name: "restartJob", role: cluster.RoleSubmitter,
			summary: "Runs a job anew, from its first step.", writes: true, reply: view, serve: a.restartJob,
		},
	}
}

package workload

import (
	"fmt"
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// JobsAPI lists, reads, writes and cancels jobs, puts them on hold, and runs them or their failed tasks again.
type JobsAPI struct{ Common }

func (a *JobsAPI) stopJob(w http.ResponseWriter, r *http.Request) error {
	return a.jobs().change(w, r, func(d *draft.Draft, job *cluster.Job) (bool, error) {
		if job.Cancelled {
			return false, nil
		}
		before := jobStatus(d.Snap, job)
		job.Cancelled = true
		// The leader reports the end of a job with the end of its last task. Without such a task this request is the
		// end.
		if now := jobStatus(d.Snap, job); !before.State.Ended() && now.State.Ended() {
			setJobEvent(d, job, "job."+string(now.State), now.Message)
		}
		return true, nil
	})
}

func (a *JobsAPI) restartJob(w http.ResponseWriter, r *http.Request) error {
	return a.jobs().change(w, r, func(d *draft.Draft, job *cluster.Job) (bool, error) {
		job.Cancelled = false
		d.BeginRun(job)
		faults := append(d.CheckStepPermissions(job.Cluster, job.Steps, "steps"), d.CheckRunNeeds(job)...)
		return true, d.RequirePermissions(job.Cluster, faults)
	})
}

// holdJob returns the operation that sets or ends the hold of a job.
func (a *JobsAPI) holdJob(hold bool) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		return a.jobs().change(w, r, func(d *draft.Draft, job *cluster.Job) (bool, error) {
			if job.Hold == hold {
				return false, nil
			}
			if status := jobStatus(d.Snap, job); hold && status.State.Ended() {
				return false, respond.Problemf(http.StatusConflict,
					"%s has ended (%s), so nothing of it can be on hold", job.Owner(), status.State)
			}
			job.Hold = hold
			kind, about := "job.released", "its tasks may begin"
			if hold {
				kind, about = "job.held", "no task of it begins; running tasks continue"
			}
			setJobEvent(d, job, kind, about)
			return true, nil
		})
	}
}

func (a *JobsAPI) setPriority(w http.ResponseWriter, r *http.Request) error {
	var ask api.PriorityRequest
	if err := strictjson.ReadBody(w, r, &ask); err != nil {
		return err
	}
	if p := ask.Priority; p < 1 || p > cluster.MaxPriority {
		return respond.Invalid(cluster.Faults{{
			Path: "priority", Message: fmt.Sprintf("is %d, want %s", p, cluster.PriorityWords()),
		}})
	}
	return a.jobs().change(w, r, func(_ *draft.Draft, job *cluster.Job) (bool, error) {
		write := job.Priority != ask.Priority
		job.Priority = ask.Priority
		return write, nil
	})
}

// retryJob has failed tasks of a job tried again. It refuses tasks that have not failed, so a request that is repeated
// while they are tried again gives them no further retries.
func (a *JobsAPI) retryJob(w http.ResponseWriter, r *http.Request) error {
	var ask api.RetryRequest
	if r.ContentLength != 0 {
		if err := strictjson.ReadBody(w, r, &ask); err != nil {
			return err
		}
	}
	return a.jobs().change(w, r, func(d *draft.Draft, job *cluster.Job) (bool, error) {
		if job.Cancelled {
			return false, respond.Problemf(http.StatusConflict,
				"%s was cancelled, so its tasks begin no more: run it again with `berth restart %s`", job.Owner(),
				job.Owner())
		}
		in := jobInput(d.Snap, job)
		failed, err := chooseFailed(job, reconciler.FailedTasks(in), ask.Tasks)
		if err != nil {
			return false, err
		}
		if err := d.RequirePermissions(job.Cluster,
			d.CheckStepPermissions(job.Cluster, job.Steps, "steps")); err != nil {
			return false, err
		}
		job.Retried = reconciler.Retry(in, failed, len(ask.Tasks) == 0)
		if n := len(job.Retried.Tasks); n > cluster.MaxRetriedTasks {
			return false, respond.Problemf(http.StatusConflict,
				"%d tasks of job %s/%s would have been tried again one by one, and %d are possible: retry all failed "+
					"tasks", n, job.Cluster, job.Name, cluster.MaxRetriedTasks)
		}
		setJobEvent(d, job, "job.retried", respond.Plural(len(failed), "failed task")+" may try again")
		return true, nil
	})
}

// jobStatus returns the state of a job as a request would leave it.
func jobStatus(snap *store.Snapshot, job *cluster.Job) reconciler.JobStatus {
	return reconciler.StatusOfJob(jobInput(snap, job))
}

// jobInput returns a job with its tasks.
func jobInput(snap *store.Snapshot, job *cluster.Job) reconciler.JobInput {
	in := reconciler.JobInput{Owner: job.Owner(), Spec: job, Packed: observe.Packed(snap, job.Owner())}
	for row := range snap.Attempts(job.Owner()) {
		if !row.IsForeign() {
			in.Tasks = append(in.Tasks, reconciler.Task{Attempt: row.Attempt})
		}
	}
	return in
}

// chooseFailed returns the failed tasks with the ids, or all of them without ids.
func chooseFailed(job *cluster.Job, failed []reconciler.FailedTask, ids []cluster.TaskID) ([]reconciler.FailedTask,
	error,
) {
	if len(failed) == 0 {
		return nil, respond.Problemf(http.StatusConflict, "no task of job %s/%s has failed for good", job.Cluster,
			job.Name)
	}
	if len(ids) == 0 {
		return failed, nil
	}
	if len(ids) > cluster.MaxRetriedTasks {
		return nil, respond.Invalid(cluster.Faults{{
			Path: "tasks",
			Message: fmt.Sprintf("has %d tasks, want %d at most: retry all failed tasks", len(ids),
				cluster.MaxRetriedTasks),
		}})
	}
	byID := make(map[cluster.TaskID]reconciler.FailedTask, len(failed))
	for _, f := range failed {
		byID[f.ID] = f
	}
	var chosen []reconciler.FailedTask
	var faults cluster.Faults
	for i, id := range ids {
		f, found := byID[id]
		if !found {
			faults = append(faults, cluster.Fault{
				Path:    fmt.Sprintf("tasks[%d]", i),
				Message: fmt.Sprintf("%s is no task of job %s/%s that has failed for good", id, job.Cluster, job.Name),
			})
			continue
		}
		chosen = append(chosen, f)
	}
	if len(faults) > 0 {
		return nil, respond.Invalid(faults)
	}
	return chosen, nil
}

// setJobEvent sets the event of a request about a job.
func setJobEvent(d *draft.Draft, job *cluster.Job, kind, message string) {
	owner := job.Owner()
	d.Instead[d.Prefix.Job(job.Cluster, job.Name)] = cluster.Event{
		Type: kind, Cluster: job.Cluster, Owner: &owner, Message: message,
	}
}

// Routes returns the operations of jobs.
func (a *JobsAPI) Routes() []route.Route {
	const one = "/v1/clusters/{cluster}/jobs/{job}"
	view := reflect.TypeFor[api.JobView]()
	return append(a.jobs().listRoutes("Jobs"), []route.Route{
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
		{
			Method: "POST", Path: one + "/retry", Name: "retryJob", Role: cluster.RoleSubmitter,
			Summary: "Has failed tasks of a job tried again; without ids all of them.", Writes: true,
			Body: reflect.TypeFor[api.RetryRequest](), Optional: true, Reply: view, Serve: a.retryJob,
		},
		{
			Method: "POST", Path: one + "/hold", Name: "holdJob", Role: cluster.RoleSubmitter,
			Summary: "Lets no task of a job begin any more; running tasks continue.", Writes: true, Reply: view,
			Serve: a.holdJob(true),
		},
		{
			Method: "POST", Path: one + "/release", Name: "releaseJob", Role: cluster.RoleSubmitter,
			Summary: "Ends the hold of a job.", Writes: true, Reply: view, Serve: a.holdJob(false),
		},
		{
			Method: "POST", Path: one + "/priority", Name: "setJobPriority", Role: cluster.RoleSubmitter,
			Summary: "Sets the priority of a job's tasks that are not placed yet.", Writes: true,
			Body: reflect.TypeFor[api.PriorityRequest](), Reply: view, Serve: a.setPriority,
		},
	}...)
}

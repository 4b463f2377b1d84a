package workload

import (
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/observe"
)

// ExplainAPI explains why services, jobs and tasks are as they are.
type ExplainAPI struct{ Common }

// Routes returns the operations that explain.
func (a *ExplainAPI) Routes() []route.Route {
	const in = "/v1/clusters/{cluster}/"
	reply, query := reflect.TypeFor[api.Explanation](), []route.Parameter{route.Consistent()}
	return []route.Route{
		{
			Method: "GET", Path: in + "services/{service}/explain", Name: "explainService", Role: cluster.RoleViewer,
			Summary: "Why a service is as it is: what its tasks, stops and rollout wait for.", Query: query,
			Reply: reply, Serve: a.explainService,
		},
		{
			Method: "GET", Path: in + "jobs/{job}/explain", Name: "explainJob", Role: cluster.RoleViewer,
			Summary: "Why a job is as it is.", Query: query, Reply: reply, Serve: a.explainJob,
		},
		{
			Method: "GET", Path: "/v1/tasks/{task}/explain", Name: "explainTask", Role: cluster.RoleViewer,
			Summary: "Why a task is as it is: what it or its stop waits for, why it moves or crashes, and why it is " +
				"on its node or what would place it.",
			Query: append(query, route.QueryParam(
				"node", "string",
				"include this node: why it refuses the task, or how it compares",
			)),
			Reply: reply, Serve: a.explainTask,
		},
	}
}

func (a *ExplainAPI) explainService(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	in, name := r.PathValue("cluster"), r.PathValue("service")
	e, ok := snap.Service(in, name)
	if !ok {
		return respond.NotFound("service", in+"/"+name)
	}
	b := a.Views.At(snap).Of(in)
	x := b.ExplainService(e)
	a.suggest(r, b, x.Owner, &x)
	return respond.JSON(w, http.StatusOK, x)
}

func (a *ExplainAPI) explainJob(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	in, name := r.PathValue("cluster"), r.PathValue("job")
	e, ok := snap.Job(in, name)
	if !ok {
		return respond.NotFound("job", in+"/"+name)
	}
	b := a.Views.At(snap).Of(in)
	x := b.ExplainJob(e)
	a.suggest(r, b, x.Owner, &x)
	return respond.JSON(w, http.StatusOK, x)
}

func (a *ExplainAPI) explainTask(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	v, _, err := a.FindTask(snap, r)
	if err != nil {
		return err
	}
	b := a.Views.At(snap).Of(v.Owner.Cluster)
	x := b.ExplainTask(&v)
	if err := a.explainPlace(r, b, &v, &x); err != nil {
		return err
	}
	return respond.JSON(w, http.StatusOK, x)
}

// explainPlace adds to the explanation of a task why it is on its node, or which changes would place it.
func (a *ExplainAPI) explainPlace(r *http.Request, b *views.Builder, v *api.TaskView, x *api.Explanation) error {
	asked := r.URL.Query().Get("node")
	p := b.Placement(r.Context())
	if e, ok := b.Snapshot.Node(asked); asked != "" && (!ok || e.Value.Domain != b.Domain.Name) {
		return respond.NotFound("node", asked)
	}
	if v.State == cluster.StatePending {
		if waiting, ok := b.FindPending(v.Owner, v.ID); ok {
			x.Place, x.Suggestions = p.Waiting(&waiting, asked)
		}
	} else {
		for row := range b.Snapshot.TaskAttempts(v.ID) {
			if row.Number == v.Attempt && row.Live() && observe.HoldsRoom(row) && row.Desired != nil {
				x.Place = p.Running(row, asked)
			}
		}
	}
	access.CallerOf(r.Context()).ShowExplanation(x)
	return nil
}

// suggest adds to the explanation of an owner which changes would place its first waiting task.
func (a *ExplainAPI) suggest(r *http.Request, b *views.Builder, o cluster.OwnerRef, x *api.Explanation) {
	if task, list := b.Suggest(r.Context(), o); len(list) > 0 {
		x.Suggestions, x.Waits = list, task
	}
	access.CallerOf(r.Context()).ShowExplanation(x)
}

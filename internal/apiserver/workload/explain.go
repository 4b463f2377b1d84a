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
			Summary: "Why a task is as it is: what it or its stop waits for, why it moves, how it crashes; " +
				"why it stands where it does, or what would let it in.",
			Query: append(query, route.QueryParam(
				"node", "string",
				"tell of this node, too: what stands against the task there, or how it compares",
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
	l := a.Views.At(snap)
	x := l.ExplainService(e)
	a.suggest(r, l, x.Owner, &x)
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
	l := a.Views.At(snap)
	x := l.ExplainJob(e)
	a.suggest(r, l, x.Owner, &x)
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
	l := a.Views.At(snap)
	x := l.ExplainTask(&v)
	if err := a.explainPlace(r, l, &v, &x); err != nil {
		return err
	}
	return respond.JSON(w, http.StatusOK, x)
}

// explainPlace adds to the explanation of a task why it is on its node, or which changes would place it.
func (a *ExplainAPI) explainPlace(r *http.Request, l *views.Builder, v *api.TaskView, x *api.Explanation) error {
	ask := r.URL.Query().Get("node")
	p := l.Placement(r.Context())
	if e, ok := l.Snapshot.Node(ask); ask != "" && (!ok || e.Value.Domain != l.Domain.Name) {
		return respond.NotFound("node", ask)
	}
	if v.State == cluster.StatePending {
		pending := l.Pending(v.Owner)
		for i := range pending {
			if pending[i].Task == v.ID {
				x.Place, x.Suggestions = p.Waiting(&pending[i], ask)
			}
		}
	} else {
		for row := range l.Snapshot.TaskAttempts(v.ID) {
			if row.Number == v.Attempt && row.Live() && observe.HoldsRoom(row) && row.Desired != nil {
				x.Place = p.Running(row, ask)
			}
		}
	}
	access.CallerOf(r.Context()).ShowExplanation(x)
	return nil
}

// suggest adds to the explanation of an owner which changes would place its first waiting task.
func (a *ExplainAPI) suggest(r *http.Request, l *views.Builder, o cluster.OwnerRef, x *api.Explanation) {
	if task, list := l.Suggest(r.Context(), o); len(list) > 0 {
		x.Suggestions, x.Waits = list, task
	}
	access.CallerOf(r.Context()).ShowExplanation(x)
}

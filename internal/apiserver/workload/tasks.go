package workload

import (
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/agentapi"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// TasksAPI lists and reads tasks.
type TasksAPI struct{ Common }

func (a *TasksAPI) listTasks(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	f := taskFilter{
		cluster: q.Get("cluster"), service: q.Get("service"), job: q.Get("job"), node: q.Get("node"),
		state: cluster.State(q.Get("state")), all: route.Flag(r, "all"), caller: access.CallerOf(r.Context()),
	}
	switch f.state {
	case "", cluster.StatePending, cluster.StateAssigned, cluster.StatePreparing, cluster.StateStarting,
		cluster.StateRunning,
		cluster.StateStopping, cluster.StateSucceeded, cluster.StateFailed, cluster.StateRejected, cluster.StateLost,
		cluster.StateCancelled:
	default:
		return route.BadQuery("state", "is %q, which is not a state of a task: want pending, assigned, preparing, "+
			"starting, running, stopping, succeeded, failed, rejected, lost or cancelled",
			respond.Clip(string(f.state)))
	}
	var err error
	if f.labels, err = route.SelectorOf(r); err != nil {
		return err
	}
	return lists.Serve(a.Lists, w, r, lists.Source[api.TaskView]{
		Lasting: views.SteadyTask,
		List:    "tasks", Topics: taskTopics, Part: taskPart, Touches: touchesOwners(f.owner),
		All: func(snap *store.Snapshot) []lists.Item[api.TaskView] {
			return taskList{a.Views.At(snap), f}.page(lists.Window{})
		},
		Page: func(snap *store.Snapshot, w lists.Window) []lists.Item[api.TaskView] {
			return taskList{a.Views.At(snap), f}.page(w)
		},
		Some: func(before, now *store.Snapshot, c *store.Changes) (map[string][]lists.Item[api.TaskView], bool) {
			return taskList{a.Views.At(now), f}.changed(before, c)
		},
	})
}

func (a *TasksAPI) readTask(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	v, _, err := a.FindTask(snap, r)
	if err != nil {
		return err
	}
	return respond.JSON(w, http.StatusOK, v)
}

// FindTask returns the view of the task in the address, as the caller may see it: the requested attempt, else the
// pending or the newest one. The row is nil for a task without attempts: one that is pending, or one that does not
// begin because its step is skipped.
func (c Common) FindTask(snap *store.Snapshot, r *http.Request) (api.TaskView, *store.AttemptRow, error) {
	v, row, err := c.findTask(snap, r)
	access.CallerOf(r.Context()).ShowTask(&v)
	return v, row, err
}

func (c Common) findTask(snap *store.Snapshot, r *http.Request) (api.TaskView, *store.AttemptRow, error) {
	id := cluster.TaskID(r.PathValue("task"))
	number, err := route.Number(r, "attempt", 0)
	if err != nil {
		return api.TaskView{}, nil, err
	}
	var row *store.AttemptRow
	for a := range snap.TaskAttempts(id) {
		if number == 0 || a.Number == int(number) {
			row = a
		}
	}
	if number == 0 && (row == nil || row.Outcome != nil) {
		l := c.Views.At(snap)
		if o, isTask := id.Owner(); isTask {
			if waiting, ok := l.FindPending(o, id); ok {
				return l.PendingTask(&waiting), row, nil
			}
		}
	}
	if row == nil && number == 0 {
		if v, ok := c.Views.At(snap).TaskThatNeverBegins(id); ok {
			return v, nil, nil
		}
	}
	if row == nil {
		return api.TaskView{}, nil, respond.NotFound("task", string(id))
	}
	return c.Views.At(snap).Task(row), row, nil
}

// Routes returns the operations of tasks.
func (a *TasksAPI) Routes() []route.Route {
	filters := []route.Parameter{
		route.QueryParam("cluster", "string", "tasks of this cluster"),
		route.QueryParam("service", "string", "tasks of the services of this name"),
		route.QueryParam("job", "string", "tasks of the jobs of this name"),
		route.QueryParam("node", "string", "tasks on this node"),
		route.BySelector("tasks of services and jobs"),
		route.QueryParam("state", "string", "tasks in this state"),
		route.QueryParam("all", "boolean", "all remembered attempts, also ended ones"),
	}
	return []route.Route{
		{
			Method: "GET", Path: "/v1/tasks", Name: "listTasks", Role: cluster.RoleViewer, Shared: true,
			Summary: "Pending and live tasks, and the final attempts of jobs' tasks.",
			Query:   route.ListParameters(filters...),
			Reply:   reflect.TypeFor[api.Page[api.TaskView]](), Stream: route.MediaEventStream, Long: true,
			Serve: a.listTasks,
		},
		{
			Method: "GET", Path: "/v1/tasks/{task}", Name: "readTask", Role: cluster.RoleViewer,
			Summary: "The newest attempt of a task.",
			Query:   []route.Parameter{agentapi.AttemptParameter(), route.Consistent()},
			Reply:   reflect.TypeFor[api.TaskView](), Serve: a.readTask,
		},
	}
}

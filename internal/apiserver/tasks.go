package apiserver

import (
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// tasksAPI lists and reads tasks.
type tasksAPI struct{ workloads }

func (a *tasksAPI) listTasks(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	f := taskFilter{
		cluster: q.Get("cluster"), service: q.Get("service"), job: q.Get("job"), node: q.Get("node"),
		state: cluster.State(q.Get("state")), all: given(r, "all"), caller: callerOf(r.Context()),
	}
	switch f.state {
	case "", cluster.StatePending, cluster.StateAssigned, cluster.StatePreparing, cluster.StateStarting,
		cluster.StateRunning,
		cluster.StateStopping, cluster.StateSucceeded, cluster.StateFailed, cluster.StateRejected, cluster.StateLost,
		cluster.StateCancelled:
	default:
		return badQuery("state", "is %q, which is not a state of a task: want pending, assigned, preparing, "+
			"starting, running, stopping, succeeded, failed, rejected, lost or cancelled", clip(string(f.state)))
	}
	return serveList(a.lists, w, r, source[api.TaskView]{
		List: "tasks", Topics: taskTopics, Part: taskPart, Touches: touchesOwners(f.owner),
		All: func(snap *store.Snapshot) []item[api.TaskView] { return a.look(snap).tasks(f) },
		Some: func(before, now *store.Snapshot, c *store.Changes) (map[string][]item[api.TaskView], bool) {
			return a.look(now).changedTasks(f, before, c)
		},
	})
}

func (a *tasksAPI) readTask(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.reads.forRequest(r)
	if err != nil {
		return err
	}
	v, _, err := a.task(snap, r)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, v)
}

// task returns the view of the task that the address names: the attempt that is asked for, else the one that waits
// or the newest. The row is nil for a task that waits.
func (a *tasksAPI) task(snap *store.Snapshot, r *http.Request) (api.TaskView, *store.AttemptRow, error) {
	id := cluster.TaskID(r.PathValue("task"))
	number, err := number(r, "attempt", 0)
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
		l := a.look(snap)
		p, _ := id.Parts()
		o := cluster.OwnerRef{Kind: kindOf(p), Cluster: p.Cluster, Name: p.Owner}
		waiting := l.owner(o).pending
		for i := range waiting {
			if waiting[i].Task == id {
				return l.pendingView(&waiting[i]), row, nil
			}
		}
	}
	if row == nil {
		return api.TaskView{}, nil, notFound("task", string(id))
	}
	return a.look(snap).taskView(row), row, nil
}

func (a *tasksAPI) routes() []route {
	filters := []parameter{
		queryParam("cluster", "string", "tasks of this cluster"),
		queryParam("service", "string", "tasks of the services of this name"),
		queryParam("job", "string", "tasks of the jobs of this name"),
		queryParam("node", "string", "tasks on this node"),
		queryParam("state", "string", "tasks in this state"),
		queryParam("all", "boolean", "every attempt that is known, also ended ones"),
	}
	return []route{
		{
			method: "GET", path: "/v1/tasks", name: "listTasks", role: cluster.RoleViewer, shared: true,
			summary: "Tasks that wait or live, and how the tasks of jobs ended.", query: listParameters(filters...),
			reply: reflect.TypeFor[api.Page[api.TaskView]](), stream: eventStream, long: true, serve: a.listTasks,
		},
		{
			method: "GET", path: "/v1/tasks/{task}", name: "readTask", role: cluster.RoleViewer,
			summary: "The newest attempt of a task.", query: []parameter{attemptParameter(), consistent()},
			reply: reflect.TypeFor[api.TaskView](), serve: a.readTask,
		},
	}
}

func attemptParameter() parameter {
	return queryParam("attempt", "integer", "the attempt's number; default the newest")
}

func containerParameter() parameter {
	return queryParam("container", "string", "the container's name; default the first essential one, for logs all")
}

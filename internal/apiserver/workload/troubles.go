package workload

import (
	"fmt"
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/trouble"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/wording"
)

// TroublesAPI lists the objects that are not as they should be.
type TroublesAPI struct{ Common }

// troubleFilter chooses the objects whose troubles are listed; an empty field chooses all.
type troubleFilter struct {
	kind, cluster, name string
	caller              *access.Caller
}

func (f *troubleFilter) includes(kind, in, name string) bool {
	return (f.kind == "" || f.kind == kind) && (f.cluster == "" || f.cluster == in) &&
		(f.name == "" || f.name == name) && (in == "" || f.caller.Sees(in))
}

func (a *TroublesAPI) list(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	f := &troubleFilter{q.Get("kind"), q.Get("cluster"), q.Get("name"), access.CallerOf(r.Context())}
	switch f.kind {
	case "", wording.KindService, wording.KindJob, wording.KindCron, wording.KindNode, wording.KindTask:
	default:
		return route.BadQuery("kind", "is %q; want service, job, cron, node or task", respond.Clip(f.kind))
	}
	if f.kind == wording.KindTask && f.name == "" {
		return route.BadQuery("kind", "is task: name the task with name, for the troubles of all tasks are those of "+
			"their services and jobs")
	}
	return lists.Serve(a.Lists, w, r, lists.Source[api.Trouble]{
		List: "troubles", Topics: taskTopics | store.TopicNodes | store.TopicCrons,
		Touches: func(*store.Changes) bool { return true },
		All: func(snap *store.Snapshot) (all []lists.Item[api.Trouble]) {
			for i, t := range a.find(snap, f) {
				f.caller.ShowTrouble(&t)
				all = append(all, lists.Item[api.Trouble]{Key: fmt.Sprintf("%06d %s", i, t.Object), Value: t})
			}
			return all
		},
	})
}

// find returns the troubles of the objects that the filter chooses.
func (a *TroublesAPI) find(snap *store.Snapshot, f *troubleFilter) []api.Trouble {
	b := a.Views.At(snap)
	if f.kind == wording.KindTask {
		return ofTask(b, f)
	}
	o := trouble.Objects{
		Now:       a.Now(),
		Tasks:     func(o cluster.OwnerRef) []api.TaskView { return troubledTasks(b, o) },
		Misplaced: func(o cluster.OwnerRef) []api.TaskView { return misplacedTasks(b, o) },
	}
	if f.kind == "" || f.kind == wording.KindNode {
		for _, name := range views.NodeNames(snap) {
			if v, ok := a.Views.Node(snap, name); ok && f.includes(wording.KindNode, "", name) {
				f.caller.ShowNode(&v)
				o.Nodes = append(o.Nodes, v)
			}
		}
	}
	for e := range snap.Services(f.cluster) {
		if f.includes(wording.KindService, e.Value.Cluster, e.Value.Name) {
			o.Services = append(o.Services, b.Service(e))
		}
	}
	for e := range snap.Jobs(f.cluster) {
		if f.includes(wording.KindJob, e.Value.Cluster, e.Value.Name) {
			o.Jobs = append(o.Jobs, b.Job(e))
		}
	}
	for e := range snap.Crons(f.cluster) {
		if f.includes(wording.KindCron, e.Value.Cluster, e.Value.Name) {
			o.Crons = append(o.Crons, b.Cron(e))
		}
	}
	return trouble.Find(&o)
}

// ofTask returns the trouble of the one task that the filter names.
func ofTask(b *views.Builder, f *troubleFilter) []api.Trouble {
	id := cluster.TaskID(f.name)
	owner, ok := id.Owner()
	if !ok || !f.caller.Sees(owner.Cluster) || f.cluster != "" && f.cluster != owner.Cluster {
		return nil
	}
	for _, v := range troubledTasks(b, owner) {
		if v.ID != id {
			continue
		}
		if t := trouble.OfTask(v); t != nil {
			return []api.Trouble{*t}
		}
	}
	return nil
}

// troubledTasks returns the newest attempt of each task of an owner that may need attention: of a service only tasks
// that wait or live, and of no owner tasks that run undisturbed.
func troubledTasks(b *views.Builder, o cluster.OwnerRef) (all []api.TaskView) {
	f := taskFilter{cluster: o.Cluster, service: o.Name}
	if o.Kind == cluster.KindJob {
		f = taskFilter{cluster: o.Cluster, job: o.Name, all: true}
	}
	list := taskList{b, f}
	newest := map[cluster.TaskID]int{}
	for row := range f.rows(b.Snapshot) {
		newest[row.Task] = max(newest[row.Task], row.Number)
	}
	for row := range f.rows(b.Snapshot) {
		if row.Number != newest[row.Task] || isUndisturbed(b.Snapshot, row) {
			continue
		}
		if item, ok := list.attemptView(row); ok {
			all = append(all, item.Value)
		}
	}
	for _, item := range list.pendingTasks(o) {
		// The last attempt of a job's task says why the task waits.
		if o.Kind != cluster.KindJob || newest[item.Value.ID] == 0 {
			all = append(all, item.Value)
		}
	}
	return all
}

// isUndisturbed reports whether an attempt has run well since it began, on a node that is not silent.
func isUndisturbed(snap *store.Snapshot, row *store.AttemptRow) bool {
	o := row.Observed
	if o == nil || row.Outcome != nil || o.State != cluster.StateRunning || o.Restarts > 0 ||
		o.Health == cluster.HealthFailing || o.Health == cluster.HealthWarning {
		return false
	}
	node, ok := snap.Node(row.Node)
	return !ok || node.Value.State != cluster.NodeDown
}

// misplacedTasks returns the tasks of a service that run where they should not.
func misplacedTasks(b *views.Builder, o cluster.OwnerRef) (all []api.TaskView) {
	for row := range b.Snapshot.Attempts(o) {
		if row.Outcome != nil {
			continue
		}
		if v := b.Task(row); v.Misplaced != "" {
			all = append(all, v)
		}
	}
	return all
}

// Routes returns the operation.
func (a *TroublesAPI) Routes() []route.Route {
	return []route.Route{
		{
			Method: "GET", Path: "/v1/troubles", Name: "listTroubles", Role: cluster.RoleViewer, Shared: true,
			Summary: "The objects that are not as they should be, with cause and next step, the most urgent first.",
			Query: route.ListParameters(
				route.QueryParam("kind", "string",
					"troubles of objects of this kind: service, job, cron, node or task"),
				route.QueryParam("cluster", "string", "troubles of objects of this cluster, and of nodes"),
				route.QueryParam("name", "string", "troubles of the objects of this name; of a task its whole id")),
			Reply: reflect.TypeFor[api.Page[api.Trouble]](), Stream: route.MediaEventStream, Long: true, Serve: a.list,
		},
	}
}

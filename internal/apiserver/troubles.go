package apiserver

import (
	"fmt"
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/apiserver/trouble"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/wording"
)

// troublesAPI lists the objects that are not as they should be.
type troublesAPI struct {
	workloads

	nodeView func(*store.Snapshot, string) (api.NodeView, bool)
}

// troubleFilter chooses the objects whose troubles are listed; an empty field chooses all.
type troubleFilter struct {
	kind, cluster, name string
	caller              *access.Caller
}

func (f *troubleFilter) includes(kind, in, name string) bool {
	return (f.kind == "" || f.kind == kind) && (f.cluster == "" || f.cluster == in) &&
		(f.name == "" || f.name == name) && (in == "" || f.caller.Sees(in))
}

func (a *troublesAPI) list(w http.ResponseWriter, r *http.Request) error {
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
	return serveList(a.Lists, w, r, lists.Source[api.Trouble]{
		List: "troubles", Topics: taskTopics | store.TopicNodes | store.TopicCrons,
		Touches: func(*store.Changes) bool { return true },
		All: func(snap *store.Snapshot) (all []lists.Item[api.Trouble]) {
			for i, t := range a.find(snap, f) {
				all = append(all, lists.Item[api.Trouble]{Key: fmt.Sprintf("%06d %s", i, t.Object), Value: t})
			}
			return all
		},
	})
}

// find returns the troubles of the objects that the filter chooses.
func (a *troublesAPI) find(snap *store.Snapshot, f *troubleFilter) []api.Trouble {
	l := a.look(snap)
	if f.kind == wording.KindTask {
		return a.ofTask(l, f)
	}
	o := trouble.Objects{
		Now: l.now, Tasks: l.troubledTasks, Misplaced: l.misplacedTasks,
	}
	if f.kind == "" || f.kind == wording.KindNode {
		for _, name := range nodeNames(snap) {
			if v, ok := a.nodeView(snap, name); ok && f.includes(wording.KindNode, "", name) {
				f.caller.ShowNode(&v)
				o.Nodes = append(o.Nodes, v)
			}
		}
	}
	for e := range snap.Services(f.cluster) {
		if f.includes(wording.KindService, e.Value.Cluster, e.Value.Name) {
			o.Services = append(o.Services, l.serviceView(e))
		}
	}
	for e := range snap.Jobs(f.cluster) {
		if f.includes(wording.KindJob, e.Value.Cluster, e.Value.Name) {
			o.Jobs = append(o.Jobs, l.jobView(e))
		}
	}
	for e := range snap.Crons(f.cluster) {
		if f.includes(wording.KindCron, e.Value.Cluster, e.Value.Name) {
			o.Crons = append(o.Crons, l.cronView(e))
		}
	}
	return trouble.Find(&o)
}

// ofTask returns the trouble of the one task that the filter names.
func (a *troublesAPI) ofTask(l *look, f *troubleFilter) []api.Trouble {
	id := cluster.TaskID(f.name)
	p, ok := id.Parts()
	if !ok || !f.caller.Sees(p.Cluster) || f.cluster != "" && f.cluster != p.Cluster {
		return nil
	}
	for _, v := range l.troubledTasks(cluster.OwnerRef{Kind: snapshot.KindOf(p), Cluster: p.Cluster, Name: p.Owner}) {
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
func (l *look) troubledTasks(o cluster.OwnerRef) (all []api.TaskView) {
	f := taskFilter{cluster: o.Cluster, service: o.Name}
	if o.Kind == cluster.KindJob {
		f = taskFilter{cluster: o.Cluster, job: o.Name, all: true}
	}
	newest := map[cluster.TaskID]int{}
	for row := range f.rows(l.snap) {
		newest[row.Task] = max(newest[row.Task], row.Number)
	}
	for row := range f.rows(l.snap) {
		if row.Number != newest[row.Task] || l.undisturbed(row) {
			continue
		}
		if item, ok := l.attemptView(f, row); ok {
			all = append(all, item.Value)
		}
	}
	for _, item := range l.pendingTasks(f, o) {
		// The last attempt of a job's task says why the task waits.
		if o.Kind != cluster.KindJob || newest[item.Value.ID] == 0 {
			all = append(all, item.Value)
		}
	}
	return all
}

// undisturbed reports whether an attempt has run well since it began, on a node that is not silent.
func (l *look) undisturbed(row *store.AttemptRow) bool {
	o := row.Observed
	if o == nil || row.Outcome != nil || o.State != cluster.StateRunning || o.Restarts > 0 ||
		o.Health == cluster.HealthFailing || o.Health == cluster.HealthWarning {
		return false
	}
	node, ok := l.snap.Node(row.Node)
	return !ok || node.Value.State != cluster.NodeDown
}

// misplacedTasks returns the tasks of a service that run where they should not.
func (l *look) misplacedTasks(o cluster.OwnerRef) (all []api.TaskView) {
	for row := range l.snap.Attempts(o) {
		if row.Outcome == nil && l.misplaced(row) != "" {
			all = append(all, l.taskView(row))
		}
	}
	return all
}

func (a *troublesAPI) routes() []route.Route {
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

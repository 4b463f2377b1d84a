package workload

import (
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
)

// QueueAPI shows what waits for placement.
type QueueAPI struct{ Common }

// Routes returns the operations on the queue.
func (a *QueueAPI) Routes() []route.Route {
	return []route.Route{{
		Method: "GET", Path: "/v1/queue", Name: "readQueue", Role: cluster.RoleViewer, Shared: true,
		Summary: "The tasks that wait for placement, in the order in which they are placed, with their reasons.",
		Query: []route.Parameter{
			route.QueryParam("cluster", "string",
				"only entries of this cluster; positions count all clusters of its domain"),
			route.QueryParam("service", "string", "only entries of the services of this name"),
			route.QueryParam("job", "string", "only entries of the jobs of this name"),
			route.QueryParam("limit", "integer",
				"the maximum number of entries, 1 to 10000, default 1000; left_out counts the tasks of the others"),
			route.QueryParam("domain", "string", "the domain, by default that of the cluster, else default"),
			route.Consistent(),
		},
		Reply: reflect.TypeFor[api.Queue](), Serve: a.readQueue,
	}}
}

func (a *QueueAPI) readQueue(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	caller, only := access.CallerOf(r.Context()), r.URL.Query().Get("cluster")
	if _, ok := snap.Cluster(only); only != "" && (!ok || !caller.Sees(only)) {
		return respond.NotFound("cluster", only)
	}
	service, job := r.URL.Query().Get("service"), r.URL.Query().Get("job")
	if _, ok := snap.Service(only, service); only != "" && service != "" && !ok {
		return respond.NotFound("service", only+"/"+service)
	}
	if _, ok := snap.Job(only, job); only != "" && job != "" && !ok {
		return respond.NotFound("job", only+"/"+job)
	}
	limit, err := route.Number(r, "limit", api.DefaultQueueLimit)
	if err != nil {
		return err
	}
	if limit < 1 || limit > api.MaxQueueLimit {
		return route.BadQuery("limit", "is %d, want 1 to %d", limit, api.MaxQueueLimit)
	}
	b := a.Views.At(snap).Of(only)
	if domain := r.URL.Query().Get("domain"); domain != "" {
		if err := a.KnownDomain(snap.Domains(), domain); err != nil {
			return err
		}
		b = b.In(domain)
	}
	q := b.Queue(int(limit), caller.Sees, func(o cluster.OwnerRef) bool {
		switch {
		case only != "" && o.Cluster != only:
			return false
		case service == "" && job == "":
			return true
		case o.Kind == cluster.KindService:
			return o.Name == service
		default:
			return o.Name == job
		}
	})
	for i := range q.Entries {
		caller.ShowQueueEntry(&q.Entries[i])
	}
	return respond.JSON(w, http.StatusOK, q)
}

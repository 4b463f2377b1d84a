package catalog

import (
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/backend"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// ClustersAPI lists, reads, writes and deletes clusters.
type ClustersAPI struct{ backend.Backend }

func (a *ClustersAPI) listClusters(w http.ResponseWriter, r *http.Request) error {
	c := access.CallerOf(r.Context())
	return lists.Serve(a.Lists, w, r, lists.Source[api.ClusterView]{
		List: "clusters", Topics: store.TopicClusters,
		All: func(snap *store.Snapshot) (all []lists.Item[api.ClusterView]) {
			for e := range snap.Clusters() {
				if !c.Sees(e.Value.Name) {
					continue
				}
				all = append(all, lists.Item[api.ClusterView]{Key: e.Value.Name, Value: clusterView(e)})
			}
			return all
		},
	})
}

func clusterView(e store.Entry[cluster.Cluster]) api.ClusterView {
	return api.ClusterView{Cluster: *e.Value, Revision: e.Modified}
}

func (a *ClustersAPI) readCluster(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	name := r.PathValue("cluster")
	e, ok := snap.Cluster(name)
	if !ok {
		return respond.NotFound("cluster", name)
	}
	v := clusterView(e)
	if v.Quota != nil {
		used := observe.QuotaUse(snap, name)
		v.Used = &used
	}
	respond.SetETag(w, e.Modified)
	return respond.JSON(w, http.StatusOK, v)
}

func (a *ClustersAPI) writeCluster(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("cluster")
	snap, written, status, err := draft.WriteNamed(a.Writer, w, r, name,
		func(c *cluster.Cluster) *string { return &c.Name }, (*draft.Draft).SetCluster)
	if err != nil {
		return err
	}
	e, ok := snap.Cluster(name)
	if !ok {
		return respond.NotFound("cluster", name)
	}
	e.Modified = written.RevisionOr(e.Modified)
	respond.SetETag(w, e.Modified)
	return respond.JSON(w, status, clusterView(e))
}

// deleteCluster deletes a cluster in two steps, so that no concurrent write creates a service without a cluster. The
// first step marks the record, and every write with that record's revision as a precondition fails.
func (a *ClustersAPI) deleteCluster(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("cluster")
	pre, err := draft.PreconditionOf(r)
	if err != nil {
		return err
	}
	_, err = a.Writer.Write(r.Context(), func(d *draft.Draft) error {
		e, ok := d.Snap.Cluster(name)
		if err := pre.Check(e.Modified); err != nil {
			return err
		}
		if !ok {
			return respond.NotFound("cluster", name)
		}
		if err := requireEmpty(d.Snap, name); err != nil || e.Value.Deleted {
			return err
		}
		marked := *e.Value
		marked.Deleted = true
		d.Put(d.Prefix.Cluster(name), marked, e.Modified)
		return nil
	})
	if err != nil {
		return err
	}
	var found error
	_, err = a.Writer.Write(r.Context(), func(d *draft.Draft) error {
		found = nil
		e, ok := d.Snap.Cluster(name)
		if !ok || !e.Value.Deleted {
			return nil // another request has finished it or created the cluster again
		}
		found = requireEmpty(d.Snap, name)
		if found == nil {
			d.Put(d.Prefix.Cluster(name), nil, e.Modified)
			return nil
		}
		open := *e.Value
		open.Deleted = false
		d.Put(d.Prefix.Cluster(name), open, e.Modified)
		return nil
	})
	if err == nil {
		err = found
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// requireEmpty returns 409 for a cluster that has services, jobs, crons, endpoints or secrets.
func requireEmpty(snap *store.Snapshot, name string) error {
	for e := range snap.Services(name) {
		return respond.Problemf(http.StatusConflict, "cluster %s still has service %s%s: delete what is in it first",
			name,
			e.Value.Name, leaving(e.Value.Lifespan))
	}
	for e := range snap.Crons(name) { // before the jobs that they make
		return respond.Problemf(http.StatusConflict, "cluster %s still has cron %s: delete what is in it first", name,
			e.Value.Name)
	}
	for e := range snap.Jobs(name) {
		return respond.Problemf(http.StatusConflict, "cluster %s still has job %s%s: delete what is in it first", name,
			e.Value.Name, leaving(e.Value.Lifespan))
	}
	for e := range snap.Endpoints(name) {
		return respond.Problemf(http.StatusConflict, "cluster %s still has endpoint %s: delete what is in it first",
			name, e.Value.Name)
	}
	for e := range snap.Secrets(name) { // the next cluster of the name must not find them
		return respond.Problemf(http.StatusConflict, "cluster %s still has secret %s: delete what is in it first", name,
			e.Value.Name)
	}
	return nil
}

func leaving(l cluster.Lifespan) string {
	if l.Deleted {
		return ", which is being deleted"
	}
	return ""
}

// Routes returns the operations of clusters.
func (a *ClustersAPI) Routes() []route.Route {
	return []route.Route{
		{
			Method: "GET", Path: "/v1/clusters", Name: "listClusters", Role: cluster.RoleViewer, Shared: true,
			Summary: "All clusters.", Query: route.ListParameters(),
			Reply:  reflect.TypeFor[api.Page[api.ClusterView]](),
			Stream: route.MediaEventStream, Long: true, Serve: a.listClusters,
		},
		{
			Method: "GET", Path: "/v1/clusters/{cluster}", Name: "readCluster", Role: cluster.RoleViewer,
			Summary: "One cluster.",
			Query:   []route.Parameter{route.Consistent()}, Reply: reflect.TypeFor[api.ClusterView](),
			Serve: a.readCluster,
		},
		{
			Method: "PUT", Path: "/v1/clusters/{cluster}", Name: "writeCluster", Role: cluster.RoleOperator,
			Summary: "Makes or changes a cluster.", Writes: true, Body: reflect.TypeFor[cluster.Cluster](),
			Reply: reflect.TypeFor[api.ClusterView](), Serve: a.writeCluster,
		},
		{
			Method: "DELETE", Path: "/v1/clusters/{cluster}", Name: "deleteCluster", Role: cluster.RoleOperator,
			Summary: "Deletes a cluster that has neither services, jobs, crons nor endpoints.", Writes: true,
			Status: http.StatusNoContent, Serve: a.deleteCluster,
		},
	}
}

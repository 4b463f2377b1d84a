package apiserver

import (
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// clustersAPI lists, reads, writes and deletes clusters.
type clustersAPI struct{ backend }

func (a *clustersAPI) listClusters(w http.ResponseWriter, r *http.Request) error {
	c := callerOf(r.Context())
	return serveList(a.lists, w, r, source[api.ClusterView]{
		List: "clusters", Topics: store.TopicClusters,
		All: func(snap *store.Snapshot) (all []item[api.ClusterView]) {
			for e := range snap.Clusters() {
				if !c.sees(e.Value.Name) {
					continue
				}
				all = append(all, item[api.ClusterView]{Key: e.Value.Name, Value: clusterView(e)})
			}
			return all
		},
	})
}

func clusterView(e store.Entry[cluster.Cluster]) api.ClusterView {
	return api.ClusterView{Cluster: *e.Value, Revision: e.Modified}
}

func (a *clustersAPI) readCluster(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.reads.forRequest(r)
	if err != nil {
		return err
	}
	name := r.PathValue("cluster")
	e, ok := snap.Cluster(name)
	if !ok {
		return notFound("cluster", name)
	}
	tag(w, e.Modified)
	return answer(w, http.StatusOK, clusterView(e))
}

func (a *clustersAPI) writeCluster(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("cluster")
	var c cluster.Cluster
	pre, err := readObject(w, r, &c, func() cluster.Faults { return named("name", &c.Name, name) })
	if err != nil {
		return err
	}
	var change api.Change
	var drawn *draft
	snap, err := a.writer.write(r.Context(), func(d *draft) (err error) {
		object := c
		drawn = d
		change, err = d.setCluster(&object, pre)
		return asProblem(err)
	})
	if err != nil {
		return err
	}
	e, ok := snap.Cluster(name)
	if !ok {
		return notFound("cluster", name)
	}
	e.Modified = drawn.at(e.Modified)
	tag(w, e.Modified)
	return answer(w, statusOfWrite(change), clusterView(e))
}

// deleteCluster deletes in two steps, so that a service that is made meanwhile is not left without
// its cluster: the first marks the record, and whatever rests on the record's revision is refused from then on.
func (a *clustersAPI) deleteCluster(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("cluster")
	pre, err := preconditionOf(r)
	if err != nil {
		return err
	}
	_, err = a.writer.write(r.Context(), func(d *draft) error {
		e, ok := d.snap.Cluster(name)
		if err := pre.check(e.Modified); err != nil {
			return err
		}
		if !ok {
			return notFound("cluster", name)
		}
		if err := occupied(d.snap, name); err != nil || e.Value.Deleted {
			return err
		}
		marked := *e.Value
		marked.Deleted = true
		d.put(d.prefix.Cluster(name), marked, e.Modified)
		return nil
	})
	if err != nil {
		return err
	}
	var found error
	_, err = a.writer.write(r.Context(), func(d *draft) error {
		found = nil
		e, ok := d.snap.Cluster(name)
		if !ok || !e.Value.Deleted {
			return nil // another request finished it, or wrote the cluster anew
		}
		found = occupied(d.snap, name)
		if found == nil {
			d.put(d.prefix.Cluster(name), nil, e.Modified)
			return nil
		}
		open := *e.Value
		open.Deleted = false
		d.put(d.prefix.Cluster(name), open, e.Modified)
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

// occupied returns 409 for a cluster that has services, jobs or crons.
func occupied(snap *store.Snapshot, name string) error {
	for e := range snap.Services(name) {
		return problemf(http.StatusConflict, "cluster %s still has service %s%s: delete what is in it first", name,
			e.Value.Name, leaving(e.Value.Lifespan))
	}
	for e := range snap.Crons(name) { // before the jobs that it makes
		return problemf(http.StatusConflict, "cluster %s still has cron %s: delete what is in it first", name,
			e.Value.Name)
	}
	for e := range snap.Jobs(name) {
		return problemf(http.StatusConflict, "cluster %s still has job %s%s: delete what is in it first", name,
			e.Value.Name, leaving(e.Value.Lifespan))
	}
	for e := range snap.Secrets(name) { // or the next cluster of the name would find them
		return problemf(http.StatusConflict, "cluster %s still has secret %s: delete what is in it first", name,
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

func (a *clustersAPI) routes() []route {
	return []route{
		{
			method: "GET", path: "/v1/clusters", name: "listClusters", role: cluster.RoleViewer, shared: true,
			summary: "All clusters.", query: listParameters(), reply: reflect.TypeFor[api.Page[api.ClusterView]](),
			stream: eventStream, long: true, serve: a.listClusters,
		},
		{
			method: "GET", path: "/v1/clusters/{cluster}", name: "readCluster", role: cluster.RoleViewer,
			summary: "One cluster.",
			query:   []parameter{consistent()}, reply: reflect.TypeFor[api.ClusterView](), serve: a.readCluster,
		},
		{
			method: "PUT", path: "/v1/clusters/{cluster}", name: "writeCluster", role: cluster.RoleOperator,
			summary: "Makes or changes a cluster.", writes: true, body: reflect.TypeFor[cluster.Cluster](),
			reply: reflect.TypeFor[api.ClusterView](), serve: a.writeCluster,
		},
		{
			method: "DELETE", path: "/v1/clusters/{cluster}", name: "deleteCluster", role: cluster.RoleOperator,
			summary: "Deletes a cluster that has neither services, jobs nor crons.", writes: true,
			status: http.StatusNoContent, serve: a.deleteCluster,
		},
	}
}

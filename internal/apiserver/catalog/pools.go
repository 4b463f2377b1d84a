package catalog

import (
	"maps"
	"net/http"
	"reflect"
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/backend"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// PoolsAPI lists, reads, writes and deletes pools of nodes. A pool without a record is shown as long as nodes name it.
type PoolsAPI struct{ backend.Backend }

func (a *PoolsAPI) listPools(w http.ResponseWriter, r *http.Request) error {
	return lists.Serve(a.Lists, w, r, lists.Source[api.PoolView]{
		List: "pools", Topics: store.TopicPools | store.TopicNodes,
		All: func(snap *store.Snapshot) (all []lists.Item[api.PoolView]) {
			sizes, views := snap.PoolSizes(), map[string]api.PoolView{}
			for name := range sizes { // order-free: a map is filled
				views[name] = api.PoolView{Pool: cluster.Pool{Name: name}}
			}
			for e := range snap.Pools() {
				views[e.Value.Name] = api.PoolView{Pool: *e.Value, Revision: e.Modified}
			}
			for _, name := range slices.Sorted(maps.Keys(views)) {
				v := views[name]
				v.Status.Nodes = sizes[name]
				all = append(all, lists.Item[api.PoolView]{Key: name, Value: v})
			}
			return all
		},
	})
}

// poolView returns the view of one pool; ok is false if it has neither settings nor nodes.
func (a *PoolsAPI) poolView(snap *store.Snapshot, name string) (v api.PoolView, ok bool) {
	e, ok := snap.Pool(name)
	v = api.PoolView{Pool: cluster.Pool{Name: name}, Revision: e.Modified}
	if ok {
		v.Pool = *e.Value
	}
	v.Status.Nodes = len(snap.PoolNodes(name))
	return v, ok || v.Status.Nodes > 0
}

func (a *PoolsAPI) readPool(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	name := r.PathValue("pool")
	v, ok := a.poolView(snap, name)
	if !ok {
		return respond.NotFound("pool", name)
	}
	respond.SetETag(w, v.Revision)
	return respond.JSON(w, http.StatusOK, v)
}

func (a *PoolsAPI) writePool(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("pool")
	snap, written, status, err := draft.WriteNamed(a.Writer, w, r, name,
		func(p *cluster.Pool) *string { return &p.Name }, (*draft.Draft).SetPool)
	if err != nil {
		return err
	}
	v, ok := a.poolView(snap, name)
	if !ok {
		return respond.NotFound("pool", name)
	}
	v.Revision = written.RevisionOr(v.Revision)
	respond.SetETag(w, v.Revision)
	return respond.JSON(w, status, v)
}

func (a *PoolsAPI) deletePool(w http.ResponseWriter, r *http.Request) error {
	return a.Writer.ServeDelete(w, r, func(d *draft.Draft, pre draft.Precondition) error {
		return d.RemovePool(r.PathValue("pool"), pre)
	})
}

// Routes returns the operations of pools.
func (a *PoolsAPI) Routes() []route.Route {
	const all, one = "/v1/pools", "/v1/pools/{pool}"
	view := reflect.TypeFor[api.PoolView]()
	return []route.Route{
		{
			Method: "GET", Path: all, Name: "listPools", Role: cluster.RoleViewer,
			Summary: "All pools of nodes: those with settings, and those that nodes name.",
			Query:   route.ListParameters(), Reply: reflect.TypeFor[api.Page[api.PoolView]](),
			Stream: route.MediaEventStream, Long: true, Serve: a.listPools,
		},
		{
			Method: "GET", Path: one, Name: "readPool", Role: cluster.RoleViewer, Summary: "One pool of nodes.",
			Query: []route.Parameter{route.Consistent()}, Reply: view, Serve: a.readPool,
		},
		{
			Method: "PUT", Path: one, Name: "writePool", Role: cluster.RoleOperator,
			Summary: "Sets the operator's settings of a pool of nodes.", Writes: true,
			Body: reflect.TypeFor[cluster.Pool](), Reply: view, Serve: a.writePool,
		},
		{
			Method: "DELETE", Path: one, Name: "deletePool", Role: cluster.RoleOperator,
			Summary: "Deletes a pool that has no nodes.", Writes: true, Status: http.StatusNoContent,
			Serve: a.deletePool,
		},
	}
}

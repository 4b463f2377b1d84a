// Package nodeapi holds the operations of nodes: to list, read and write them, to cordon, drain, taint and forget them.
package nodeapi

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
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// API lists, reads and writes nodes, cordons, drains, taints and forgets them.
type API struct {
	backend.Backend

	Views *views.Source
}

func (a *API) listNodes(w http.ResponseWriter, r *http.Request) error {
	c, only := access.CallerOf(r.Context()), r.URL.Query().Get("name")
	labels, err := route.SelectorOf(r)
	if err != nil {
		return err
	}
	show := func(snap *store.Snapshot, name string) []lists.Item[api.NodeView] {
		if only != "" && name != only {
			return nil
		}
		v, ok := a.Views.Node(snap, name)
		if !ok {
			return nil
		}
		if c.ShowNode(&v); !labels.Matches(v.Labels) {
			return nil
		}
		return []lists.Item[api.NodeView]{{Key: name, Value: v}}
	}
	return lists.Serve(a.Lists, w, r, lists.Source[api.NodeView]{
		Lasting: views.SteadyNode,
		List:    "nodes", Topics: nodeTopics, Part: func(i *lists.Item[api.NodeView]) string { return i.Key },
		All: func(snap *store.Snapshot) (all []lists.Item[api.NodeView]) {
			for _, name := range views.NodeNames(snap) {
				all = append(all, show(snap, name)...)
			}
			return all
		},
		Some: func(before, now *store.Snapshot, c *store.Changes) (parts map[string][]lists.Item[api.NodeView],
			whole bool,
		) {
			nodes, whole := changedNodes(before, now, c)
			if whole {
				return nil, true
			}
			parts = make(map[string][]lists.Item[api.NodeView], len(nodes))
			for name := range nodes { // order-free: each on its own
				parts[name] = show(now, name)
			}
			return parts, false
		},
	})
}

func (a *API) readNode(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.Reads.ForRequest(r)
	if err != nil {
		return err
	}
	name := r.PathValue("node")
	v, ok := a.Views.Node(snap, name)
	if !ok {
		return respond.NotFound("node", name)
	}
	v.KeptRoom = views.KeptRoom(snap, name)
	access.CallerOf(r.Context()).ShowNode(&v)
	respond.SetETag(w, v.Revision)
	return respond.JSON(w, http.StatusOK, v)
}

func (a *API) writeNode(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("node")
	var host cluster.Host
	pre, err := draft.ReadObject(w, r, &host, func() cluster.Faults {
		faults := draft.FillName("name", &host.Name, name)
		if host.Drain != nil {
			faults = append(faults, cluster.Fault{
				Path:    "drain",
				Message: "is not set here: POST to " + r.URL.Path + "/drain",
			})
		}
		if host.Gone {
			faults = append(faults, cluster.Fault{
				Path:    "gone",
				Message: "is not set here: POST to " + r.URL.Path + "/forget",
			})
		}
		return faults
	})
	if err != nil {
		return err
	}
	var written *draft.Draft
	snap, err := a.Writer.Write(r.Context(), func(d *draft.Draft) error {
		object := host
		written = d
		return draft.AsProblem(d.SetHost(&object, pre))
	})
	if err != nil {
		return err
	}
	v, ok := a.Views.Node(snap, name)
	if !ok {
		return respond.NotFound("node", name)
	}
	v.Revision = written.RevisionOr(v.Revision)
	respond.SetETag(w, v.Revision)
	return respond.JSON(w, http.StatusOK, v)
}

// Routes returns the operations of nodes.
func (a *API) Routes() []route.Route {
	view := reflect.TypeFor[api.NodeView]()
	return []route.Route{
		{
			Method: "GET", Path: "/v1/nodes", Name: "listNodes", Role: cluster.RoleViewer, Shared: true,
			Summary: "All nodes.",
			Query:   route.ListParameters(route.ByName(), route.BySelector("elements")),
			Reply:   reflect.TypeFor[api.Page[api.NodeView]](),
			Stream:  route.MediaEventStream,
			Long:    true,
			Serve:   a.listNodes,
		},
		{
			Method: "GET", Path: "/v1/nodes/{node}", Name: "readNode", Role: cluster.RoleViewer, Shared: true,
			Summary: "One node.",
			Query:   []route.Parameter{route.Consistent()}, Reply: view, Serve: a.readNode,
		},
		{
			Method: "PUT", Path: "/v1/nodes/{node}", Name: "writeNode", Role: cluster.RoleOperator,
			Summary: "Sets the operator's settings of a node: labels, pool, taints, reserved " +
				"ports, cordon. A drain continues.",
			Writes: true, Body: reflect.TypeFor[cluster.Host](), Reply: view, Serve: a.writeNode,
		},
	}
}

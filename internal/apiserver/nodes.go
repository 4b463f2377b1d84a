package apiserver

import (
	"net/http"
	"reflect"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// nodesAPI lists, reads and writes nodes, cordons, drains, taints and forgets them.
type nodesAPI struct {
	backend

	nodeView func(*store.Snapshot, string) (api.NodeView, bool)
}

func (a *nodesAPI) listNodes(w http.ResponseWriter, r *http.Request) error {
	c := callerOf(r.Context())
	show := func(snap *store.Snapshot, name string) []item[api.NodeView] {
		v, ok := a.nodeView(snap, name)
		if !ok {
			return nil
		}
		c.showNode(&v)
		return []item[api.NodeView]{{Key: name, Value: v}}
	}
	return serveList(a.lists, w, r, source[api.NodeView]{
		List: "nodes", Topics: nodeTopics, Part: func(i *item[api.NodeView]) string { return i.Key },
		All: func(snap *store.Snapshot) (all []item[api.NodeView]) {
			for _, name := range nodeNames(snap) {
				all = append(all, show(snap, name)...)
			}
			return all
		},
		Some: func(before, now *store.Snapshot, c *store.Changes) (parts map[string][]item[api.NodeView], whole bool) {
			nodes, whole := changedNodes(before, now, c)
			if whole {
				return nil, true
			}
			parts = make(map[string][]item[api.NodeView], len(nodes))
			for name := range nodes { // order-free: each is computed by itself
				parts[name] = show(now, name)
			}
			return parts, false
		},
	})
}

func (a *nodesAPI) readNode(w http.ResponseWriter, r *http.Request) error {
	snap, err := a.reads.forRequest(r)
	if err != nil {
		return err
	}
	name := r.PathValue("node")
	v, ok := a.nodeView(snap, name)
	if !ok {
		return notFound("node", name)
	}
	callerOf(r.Context()).showNode(&v)
	tag(w, v.Revision)
	return answer(w, http.StatusOK, v)
}

func (a *nodesAPI) writeNode(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("node")
	var host cluster.Host
	pre, err := readObject(w, r, &host, func() cluster.Faults {
		faults := named("name", &host.Name, name)
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
	var drawn *draft
	snap, err := a.writer.write(r.Context(), func(d *draft) error {
		object := host
		drawn = d
		return d.setHost(&object, pre)
	})
	if err != nil {
		return err
	}
	v, ok := a.nodeView(snap, name)
	if !ok {
		return notFound("node", name)
	}
	v.Revision = drawn.at(v.Revision)
	tag(w, v.Revision)
	return answer(w, http.StatusOK, v)
}

func (a *nodesAPI) routes() []route {
	view := reflect.TypeFor[api.NodeView]()
	return []route{
		{
			method: "GET", path: "/v1/nodes", name: "listNodes", role: cluster.RoleViewer, shared: true,
			summary: "All nodes.",
			query:   listParameters(), reply: reflect.TypeFor[api.Page[api.NodeView]](), stream: eventStream,
			long:  true,
			serve: a.listNodes,
		},
		{
			method: "GET", path: "/v1/nodes/{node}", name: "readNode", role: cluster.RoleViewer, shared: true,
			summary: "One node.",
			query:   []parameter{consistent()}, reply: view, serve: a.readNode,
		},
		{
			method: "PUT", path: "/v1/nodes/{node}", name: "writeNode", role: cluster.RoleOperator,
			summary: "Sets what the operator decides of a node: labels, pool, taints, cordon. A drain goes on.",
			writes:  true, body: reflect.TypeFor[cluster.Host](), reply: view, serve: a.writeNode,
		},
	}
}

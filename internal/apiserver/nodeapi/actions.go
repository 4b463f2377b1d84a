package nodeapi

import (
	"net/http"
	"reflect"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// nodeVerb changes the operator's settings of a node. It is idempotent.
type nodeVerb func(d *draft.Draft, n api.NodeView, h *cluster.Host, how api.NodeAction) error

// cordonNode keeps new tasks away.
func cordonNode(_ *draft.Draft, _ api.NodeView, h *cluster.Host, _ api.NodeAction) error {
	h.Cordon = true
	return nil
}

func uncordonNode(_ *draft.Draft, _ api.NodeView, h *cluster.Host, _ api.NodeAction) error {
	if h.Drain != nil {
		return respond.Problemf(http.StatusConflict,
			"node %s is being drained, which keeps new tasks away too: undrain it",
			h.Name)
	}
	h.Cordon = false
	return nil
}

// drainNode moves the tasks of a node away. If a drain is running, missing fields keep its values, and an equal
// deadline is not extended.
func drainNode(d *draft.Draft, _ api.NodeView, h *cluster.Host, how api.NodeAction) error {
	if h.Gone {
		return respond.Problemf(http.StatusConflict, "node %s was forgotten: its tasks are replaced already", h.Name)
	}
	next := cluster.Drain{Since: d.Now}
	if h.Drain != nil {
		next = *h.Drain
	}
	next.Force = next.Force || how.Force
	if span := time.Duration(how.Deadline); span > 0 && next.Deadline.Sub(next.Since) != span {
		next.Deadline = d.Now.Add(span)
	}
	h.Drain = &next
	return nil
}

func undrainNode(_ *draft.Draft, _ api.NodeView, h *cluster.Host, _ api.NodeAction) error {
	h.Drain = nil
	return nil
}

// forgetNode declares that a machine never returns. The control plane replaces its tasks and then removes its records.
func forgetNode(_ *draft.Draft, n api.NodeView, h *cluster.Host, how api.NodeAction) error {
	if n.State != cluster.NodeDown && n.State != cluster.NodeAbsent && !how.Force && !h.Gone {
		return respond.Problemf(http.StatusConflict, "node %s is %s: tasks that still run there would run twice. "+
			"Stop the machine and wait until the node is down, or use --force", h.Name, n.State)
	}
	if h.Released != 0 && n.State != cluster.NodeAbsent {
		return respond.Problemf(http.StatusConflict, "node %s was released, and its records are still being removed: "+
			"try again in a minute", h.Name)
	}
	h.Gone, h.Released = true, 0
	return nil
}

// nodeAction returns the handler of a verb. The body is optional.
func (a *API) nodeAction(verb nodeVerb) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		var how api.NodeAction
		if r.ContentLength != 0 {
			if err := strictjson.ReadBody(w, r, &how); err != nil {
				return err
			}
		}
		if how.Deadline < 0 {
			return respond.Invalid(cluster.Faults{{Path: "deadline", Message: "is negative"}})
		}
		return a.changeNode(w, r,
			func(d *draft.Draft, n api.NodeView, h *cluster.Host) error { return verb(d, n, h, how) })
	}
}

// changeNode changes the operator's settings of a node under the request's preconditions, and answers with the node.
func (a *API) changeNode(w http.ResponseWriter, r *http.Request,
	change func(*draft.Draft, api.NodeView, *cluster.Host) error,
) error {
	return a.changeAnyNode(w, r, func(d *draft.Draft, n api.NodeView, known bool, h *cluster.Host) error {
		if !known {
			return respond.NotFound("node", h.Name)
		}
		return change(d, n, h)
	})
}

// changeAnyNode does the same for nodes that no record names so far, too.
func (a *API) changeAnyNode(w http.ResponseWriter, r *http.Request,
	change func(d *draft.Draft, n api.NodeView, known bool, h *cluster.Host) error,
) error {
	pre, err := draft.PreconditionOf(r)
	if err != nil {
		return err
	}
	name := r.PathValue("node")
	var last api.NodeView
	var written *draft.Draft
	snap, err := a.Writer.Write(r.Context(), func(d *draft.Draft) error {
		n, ok := a.Views.Node(d.Snap, name)
		if err := pre.Check(n.Revision); err != nil {
			return err
		}
		last, written = n, d
		return changeHost(d, name, func(h *cluster.Host) error { return change(d, n, ok, h) })
	})
	if err != nil {
		return err
	}
	if v, ok := a.Views.Node(snap, name); ok {
		last = v
		last.Revision = written.RevisionOr(v.Revision)
	}
	respond.SetETag(w, last.Revision)
	return respond.JSON(w, http.StatusOK, last) // it may be gone already
}

// changeHost drafts a change of the operator's settings of a node, which may not have any yet.
func changeHost(d *draft.Draft, name string, change func(*cluster.Host) error) error {
	old, ok := d.Snap.Host(name)
	next := cluster.Host{Name: name}
	if ok {
		next = *old.Value
	}
	if err := change(&next); err != nil {
		return err
	}
	before := cluster.Host{Name: name}
	if ok {
		before = *old.Value
	}
	if action, _ := draft.Compare(&before, &next); action == api.ActionNone {
		return nil
	}
	key := d.Prefix.Host(name)
	if next.Gone && next.Released == 0 && !hasRecords(d.Snap, name) {
		// The node has no records of agents or tasks, so its settings are removed immediately.
		d.Remove(key, old.Modified,
			cluster.Event{Type: "node.forgotten", Node: name, Message: "the operator forgot the node"})
		return nil
	}
	d.Put(key, &next, old.Modified)
	return nil
}

// hasRecords reports whether a node has records of the control plane or of an agent.
func hasRecords(snap *store.Snapshot, name string) bool {
	_, judged := snap.Node(name)
	_, known := snap.NodeStatus(name)
	if judged || known {
		return true
	}
	for range snap.NodeAttempts(name) {
		return true
	}
	return false
}

// ActionRoutes returns the operations that act on nodes.
func (a *API) ActionRoutes() []route.Route {
	const at = "/v1/nodes/{node}/"
	how, view := reflect.TypeFor[api.NodeAction](), reflect.TypeFor[api.NodeView]()
	return []route.Route{
		{
			Method: "POST", Path: at + "cordon", Name: "cordonNode", Summary: "Keeps new tasks away from a node.",
			Role: cluster.RoleOperator, Writes: true, Body: how, Optional: true, Reply: view,
			Serve: a.nodeAction(cordonNode),
		},
		{
			Method: "POST", Path: at +
				"uncordon", Name: "uncordonNode", Summary: "Admits new tasks to a node again.",
			Role: cluster.RoleOperator, Writes: true, Body: how, Optional: true, Reply: view,
			Serve: a.nodeAction(uncordonNode),
		},
		{
			Method: "POST", Path: at +
				"drain", Name: "drainNode", Summary: "Moves a node's tasks away.", Role: cluster.RoleOperator,
			Writes: true, Body: how, Optional: true, Reply: view, Serve: a.nodeAction(drainNode),
		},
		{
			Method: "POST", Path: at + "undrain", Name: "undrainNode", Summary: "Ends a drain.",
			Role:   cluster.RoleOperator,
			Writes: true, Body: how, Optional: true, Reply: view, Serve: a.nodeAction(undrainNode),
		},
		{
			Method: "POST", Path: at + "forget", Name: "forgetNode",
			Summary: "Declares that a machine never comes back: its tasks are replaced immediately and its " +
				"records removed. Refused for a node that is not down, unless forced.", Role: cluster.RoleOperator,
			Writes: true,
			Body:   how, Optional: true, Reply: view, Serve: a.nodeAction(forgetNode),
		},
		{
			Method: "POST", Path: at + "taint", Name: "taintNode",
			Summary: "Gives a node taints, which keep tasks away that do not tolerate them. The value of " +
				"one with the same key and effect is replaced.", Role: cluster.RoleOperator, Writes: true,
			Body: reflect.TypeFor[api.TaintRequest](), Reply: view, Serve: a.taintNode,
		},
		{
			Method: "POST", Path: at + "untaint", Name: "untaintNode",
			Summary: "Takes taints from a node, by their keys.", Role: cluster.RoleOperator, Writes: true,
			Body: reflect.TypeFor[api.UntaintRequest](), Reply: view, Serve: a.untaintNode,
		},
		{
			Method: "POST", Path: at + "reserve-ports", Name: "reservePorts",
			Summary: "Keeps ports of a node from tasks. Tasks that have one of them keep it.",
			Role:    cluster.RoleOperator, Writes: true, Body: reflect.TypeFor[api.ReservedPortsRequest](),
			Reply: view, Serve: a.reservePorts,
		},
		{
			Method: "POST", Path: at + "unreserve-ports", Name: "unreservePorts",
			Summary: "Allows ports of a node to tasks again, except those that its agent reserves.",
			Role:    cluster.RoleOperator, Writes: true, Body: reflect.TypeFor[api.ReservedPortsRequest](),
			Reply: view, Serve: a.unreservePorts,
		},
		{
			Method: "POST", Path: at + "domain", Name: "domainNode",
			Summary: "Gives a node to a domain. The present domain drains it first, or by force the next one takes " +
				"it at once.", Role: cluster.RoleOperator, Writes: true,
			Body: reflect.TypeFor[api.NodeDomainRequest](), Reply: view, Serve: a.domainNode,
		},
		{
			Method: "POST", Path: at + "setup", Name: "setupNode",
			Summary: "Records how a machine was added, with its domain and its pool, also before its agent registers.",
			Role:    cluster.RoleOperator, Writes: true, Body: reflect.TypeFor[api.NodeSetupRequest](), Reply: view,
			Serve: a.setupNode,
		},
		{
			Method: "POST", Path: at + "dial", Name: "dialNode",
			Summary: "Makes a node a passive one that servers dial, also before its agent registers, or without an " +
				"address one whose agent dials the servers.",
			Role: cluster.RoleOperator, Writes: true, Body: reflect.TypeFor[api.NodeDialRequest](),
			Reply: view, Serve: a.dialNode,
		},
		{
			Method: "POST", Path: at + "pool", Name: "poolNode",
			Summary: "Puts a node into a pool, or without one takes it out of its pool.", Role: cluster.RoleOperator,
			Writes: true,
			Body:   reflect.TypeFor[api.PoolRequest](), Reply: view, Serve: a.poolNode,
		},
	}
}

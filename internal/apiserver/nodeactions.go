package apiserver

import (
	"net/http"
	"reflect"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// nodeVerb changes what the operator wants of a node. Each is idempotent: done already is no error.
type nodeVerb func(d *draft, n api.NodeView, h *cluster.Host, how api.NodeAction) error

// cordonNode keeps new tasks away.
func cordonNode(_ *draft, _ api.NodeView, h *cluster.Host, _ api.NodeAction) error {
	h.Cordon = true
	return nil
}

func uncordonNode(_ *draft, _ api.NodeView, h *cluster.Host, _ api.NodeAction) error {
	if h.Drain != nil {
		return problemf(http.StatusConflict, "node %s is being drained, which keeps new tasks away too: undrain it",
			h.Name)
	}
	h.Cordon = false
	return nil
}

// drainNode empties a node. In a drain that goes on already, what the request leaves out stays as it is, and a
// deadline that was asked for before in the same words is not put off.
func drainNode(d *draft, _ api.NodeView, h *cluster.Host, how api.NodeAction) error {
	if h.Gone {
		return problemf(http.StatusConflict, "node %s was forgotten: its tasks are replaced already", h.Name)
	}
	next := cluster.Drain{Since: d.now}
	if h.Drain != nil {
		next = *h.Drain
	}
	next.Force = next.Force || how.Force
	if span := time.Duration(how.Deadline); span > 0 && next.Deadline.Sub(next.Since) != span {
		next.Deadline = d.now.Add(span)
	}
	h.Drain = &next
	return nil
}

func undrainNode(_ *draft, _ api.NodeView, h *cluster.Host, _ api.NodeAction) error {
	h.Drain = nil
	return nil
}

// forgetNode declares that a machine never comes back. The control plane replaces its tasks and then removes its
// records.
func forgetNode(_ *draft, n api.NodeView, h *cluster.Host, how api.NodeAction) error {
	if n.State != cluster.NodeDown && n.State != cluster.NodeAbsent && !how.Force && !h.Gone {
		return problemf(http.StatusConflict, "node %s is %s: tasks that still run there would run twice. "+
			"Stop the machine and wait until the node is down, or demand it with force", h.Name, n.State)
	}
	h.Gone = true
	return nil
}

// nodeAction returns the handler of a verb. The body may be left out.
func (a *nodesAPI) nodeAction(verb nodeVerb) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		var how api.NodeAction
		if r.ContentLength != 0 {
			if err := readBody(w, r, &how); err != nil {
				return err
			}
		}
		if how.Deadline < 0 {
			return faulty(cluster.Faults{{Path: "deadline", Message: "is negative"}})
		}
		return a.changeNode(w, r, func(d *draft, n api.NodeView, h *cluster.Host) error { return verb(d, n, h, how) })
	}
}

// changeNode changes the operator's settings of a node that some record speaks of, under the request's preconditions,
// and answers with what the node is then.
func (a *nodesAPI) changeNode(w http.ResponseWriter, r *http.Request,
	change func(*draft, api.NodeView, *cluster.Host) error,
) error {
	pre, err := preconditionOf(r)
	if err != nil {
		return err
	}
	name := r.PathValue("node")
	var last api.NodeView
	var drawn *draft
	snap, err := a.writer.write(r.Context(), func(d *draft) error {
		n, ok := a.nodeView(d.snap, name)
		if err := pre.check(n.Revision); err != nil {
			return err
		}
		if !ok {
			return notFound("node", name)
		}
		last, drawn = n, d
		return changeHost(d, name, func(h *cluster.Host) error { return change(d, n, h) })
	})
	if err != nil {
		return err
	}
	if v, ok := a.nodeView(snap, name); ok {
		last = v
		last.Revision = drawn.at(v.Revision)
	}
	tag(w, last.Revision)
	return answer(w, http.StatusOK, last) // it may be gone already
}

// changeHost draws a change of the operator's settings of a node, which may not have any yet.
func changeHost(d *draft, name string, change func(*cluster.Host) error) error {
	old, ok := d.snap.Host(name)
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
	if action, _ := compare(&before, &next); action == api.ActionNone {
		return nil
	}
	key := d.prefix.Host(name)
	if next.Gone && !registered(d.snap, name) {
		// Nothing runs there that anybody knows of: the settings are all that there is to forget.
		d.remove(key, old.Modified,
			cluster.Event{Type: "node.forgotten", Node: name, Message: "the operator forgot the node"})
		return nil
	}
	d.put(key, &next, old.Modified)
	return nil
}

// registered reports whether a node has records of the control plane or of an agent.
func registered(snap *store.Snapshot, name string) bool {
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

// actionRoutes are what is done to nodes, besides settings.
func (a *nodesAPI) actionRoutes() []route {
	const at = "/v1/nodes/{node}/"
	how, view := reflect.TypeFor[api.NodeAction](), reflect.TypeFor[api.NodeView]()
	return []route{
		{
			method: "POST", path: at + "cordon", name: "cordonNode", summary: "Keeps new tasks away from a node.",
			role: cluster.RoleOperator, writes: true, body: how, optional: true, reply: view,
			serve: a.nodeAction(cordonNode),
		},
		{
			method: "POST", path: at +
				"uncordon", name: "uncordonNode", summary: "Lets new tasks come to a node again.",
			role: cluster.RoleOperator, writes: true, body: how, optional: true, reply: view,
			serve: a.nodeAction(uncordonNode),
		},
		{
			method: "POST", path: at +
				"drain", name: "drainNode", summary: "Moves a node's tasks away.", role: cluster.RoleOperator,
			writes: true, body: how, optional: true, reply: view, serve: a.nodeAction(drainNode),
		},
		{
			method: "POST", path: at + "undrain", name: "undrainNode", summary: "Ends a drain.",
			role:   cluster.RoleOperator,
			writes: true, body: how, optional: true, reply: view, serve: a.nodeAction(undrainNode),
		},
		{
			method: "POST", path: at + "forget", name: "forgetNode",
			summary: "Declares that a machine never comes back: its tasks are replaced at once and its " +
				"records removed. Refused for a node that is not down, unless forced.", role: cluster.RoleOperator,
			writes: true,
			body:   how, optional: true, reply: view, serve: a.nodeAction(forgetNode),
		},
		{
			method: "POST", path: at + "taint", name: "taintNode",
			summary: "Gives a node taints, which keep tasks away that do not tolerate them. The value of " +
				"one with the same key and effect is replaced.", role: cluster.RoleOperator, writes: true,
			body: reflect.TypeFor[api.TaintRequest](), reply: view, serve: a.taintNode,
		},
		{
			method: "POST", path: at +
				"untaint", name: "untaintNode", summary: "Takes taints from a node, by their keys.",
			role: cluster.RoleOperator, writes: true, body: reflect.TypeFor[api.UntaintRequest](), reply: view,
			serve: a.untaintNode,
		},
		{
			method: "POST", path: at + "pool", name: "poolNode",
			summary: "Puts a node into a pool, or without one takes it out of its pool.", role: cluster.RoleOperator,
			writes: true,
			body:   reflect.TypeFor[api.PoolRequest](), reply: view, serve: a.poolNode,
		},
	}
}

package apiserver

import (
	"bytes"
	"context"
	"net/http"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
)

// operatorRoutes are for those who run the servers.
func (s *Server) operatorRoutes() []route {
	server, recovery, domain := typeOf[api.ServerView](), typeOf[api.RecoveryView](), typeOf[api.DomainView]()
	force := parameter{"force", "boolean", "even where what is left would have no quorum, or the server is up"}
	return []route{
		{
			method: "GET", path: "/v1/status", name: "readStatus",
			summary: "The state of the whole: leader, servers, nodes, store, and what somebody should look at.",
			role:    viewer, shared: true, query: []parameter{consistent()}, reply: typeOf[api.Status](),
			serve: s.readStatus,
		},
		{
			method: "GET", path: "/v1/servers", name: "listServers",
			summary: "The members of the control plane, with their parts in the store.", role: viewer,
			query: listParameters(), reply: typeOf[api.Page[api.ServerView]](), stream: eventStream, long: true,
			serve: s.listServers,
		},
		{
			method: "GET", path: "/v1/servers/{server}", name: "readServer",
			summary: "One member of the control plane, by its id or its member's.", role: viewer,
			query: []parameter{consistent()}, reply: server, serve: s.readServer,
		},
		{
			method: "POST", path: "/v1/servers/{server}/promote", name: "promoteServer",
			summary: "Gives a member of the store that only copies it its vote.", role: admin, reply: server,
			serve: s.promoteServer,
		},
		{
			method: "DELETE", path: "/v1/servers/{server}", name: "removeServer",
			summary: "Takes a server out of the store and deletes its record. Refused for the last one, and " +
				"where what is left would have no quorum.", role: admin, query: []parameter{force},
			status: http.StatusNoContent, serve: s.removeServer,
		},
		{
			method: "GET", path: "/v1/snapshot", name: "readSnapshot",
			summary: "A copy of the whole store, secrets' hashes included. The header Berth-Revision tells " +
				"a revision that it holds at the least, the trailer Berth-Sha256 the sum of its bytes.", role: operator,
			audited: true, stream: "application/octet-stream", long: true, serve: s.readSnapshot,
		},
		{
			method: "GET", path: "/v1/recovery", name: "readRecovery",
			summary: "Whether the store went back behind the agents, and what was decided about it.", role: viewer,
			query: []parameter{consistent()}, reply: recovery, serve: s.readRecovery,
		},
		{
			method: "POST", path: "/v1/recovery", name: "recover",
			summary: "Decides what becomes of tasks that nodes run and a store that went back does not know.",
			role:    admin, writes: true, body: typeOf[api.RecoveryRequest](), reply: recovery, serve: s.recover,
		},
		{
			method: "GET", path: "/v1/domain", name: "readDomain", summary: "What the operator set for the domain.",
			role: viewer, query: []parameter{consistent()}, reply: domain, serve: s.readDomain,
		},
		{
			method: "PUT", path: "/v1/domain", name: "writeDomain",
			summary: "Sets what the operator decides of the domain.", role: operator, writes: true,
			body: typeOf[cluster.DomainSettings](), reply: domain, serve: s.writeDomain,
		},
		{
			method: "POST", path: "/v1/domain/reschedule", name: "reschedule",
			summary: "Lets tasks of silent nodes be replaced for a while, however many are silent; for 0 no more.",
			role:    operator, writes: true, body: typeOf[api.RescheduleRequest](), reply: domain,
			serve: s.reschedule,
		},
		{
			method: "GET", path: "/v1/config", name: "readConfig",
			summary: "The settings of the server that answers, without what is secret.", role: operator, audited: true,
			reply: typeOf[api.Settings](), serve: s.readConfig,
		},
		{
			method: "GET", path: "/debug/pprof/{profile}", name: "readProfile",
			summary: "A profile of the server that answers: goroutine, heap, allocs, block, mutex, " +
				"threadcreate, or profile, which measures the CPU.",
			role: admin, audited: true, query: []parameter{
				{"seconds", "integer", "how long the CPU is measured; default 30, at most 120"},
				{"debug", "integer", "1 or 2: as text"},
				{"gc", "integer", "1: collect garbage before a heap profile"},
			}, stream: "application/octet-stream", long: true, serve: s.readProfile,
		},
	}
}

// nodeVerbs are what is done to nodes, besides settings.
func (s *Server) nodeVerbs() []route {
	const at = "/v1/nodes/{node}/"
	how, view := typeOf[api.NodeAction](), typeOf[api.NodeView]()
	return []route{
		{
			method: "POST", path: at + "cordon", name: "cordonNode", summary: "Keeps new tasks away from a node.",
			role: operator, writes: true, body: how, optional: true, reply: view, serve: s.nodeAction(cordonNode),
		},
		{
			method: "POST", path: at +
				"uncordon", name: "uncordonNode", summary: "Lets new tasks come to a node again.",
			role: operator, writes: true, body: how, optional: true, reply: view, serve: s.nodeAction(uncordonNode),
		},
		{
			method: "POST", path: at +
				"drain", name: "drainNode", summary: "Moves a node's tasks away.", role: operator,
			writes: true, body: how, optional: true, reply: view, serve: s.nodeAction(drainNode),
		},
		{
			method: "POST", path: at + "undrain", name: "undrainNode", summary: "Ends a drain.", role: operator,
			writes: true, body: how, optional: true, reply: view, serve: s.nodeAction(undrainNode),
		},
		{
			method: "POST", path: at + "forget", name: "forgetNode",
			summary: "Declares that a machine never comes back: its tasks are replaced at once and its " +
				"records removed. Refused for a node that is not down, unless forced.", role: operator, writes: true,
			body: how, optional: true, reply: view, serve: s.nodeAction(forgetNode),
		},
		{
			method: "POST", path: at + "taint", name: "taintNode",
			summary: "Gives a node taints, which keep tasks away that do not tolerate them. The value of " +
				"one with the same key and effect is replaced.", role: operator, writes: true,
			body: typeOf[api.TaintRequest](), reply: view, serve: s.taintNode,
		},
		{
			method: "POST", path: at +
				"untaint", name: "untaintNode", summary: "Takes taints from a node, by their keys.",
			role: operator, writes: true, body: typeOf[api.UntaintRequest](), reply: view, serve: s.untaintNode,
		},
		{
			method: "POST", path: at + "pool", name: "poolNode",
			summary: "Puts a node into a pool, or without one takes it out of its pool.", role: operator, writes: true,
			body: typeOf[api.PoolRequest](), reply: view, serve: s.poolNode,
		},
	}
}

// secretWords are in the names of settings that are left out, in case one finds its way there.
func secretWords() []string { return []string{"secret", "password", "token"} }

func (s *Server) readConfig(w http.ResponseWriter, _ *http.Request) error {
	v := api.Settings{Server: s.cfg.ServerID, Values: map[string]string{}}
	for name, value := range s.cfg.Settings { // order-free: a map is filled
		v.Values[name] = value
		for _, word := range secretWords() {
			if strings.Contains(name, word) && !strings.HasSuffix(name, "-file") {
				v.Values[name] = "(left out)"
			}
		}
	}
	return answer(w, http.StatusOK, v)
}

// Bounds of a CPU profile, in seconds.
const (
	profileSeconds = 30
	profileMost    = 120
)

// readProfile answers as Go's own handlers of profiles do, so that its tools can read it.
func (s *Server) readProfile(w http.ResponseWriter, r *http.Request) error {
	kind := r.PathValue("profile")
	seconds, err := number(r, "seconds", profileSeconds)
	if err != nil {
		return err
	}
	debug, err := number(r, "debug", 0)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	if kind == "profile" {
		if err := profileCPU(r.Context(), &out,
			time.Duration(min(max(seconds, 1), profileMost))*time.Second); err != nil {
			return err
		}
	} else {
		p := pprof.Lookup(kind)
		if p == nil {
			return notFound("profile", clip(kind))
		}
		if kind == "heap" && given(r, "gc") {
			runtime.GC()
		}
		if debug > 0 {
			h.Set("Content-Type", "text/plain; charset=utf-8")
		}
		if err := p.WriteTo(&out, int(min(debug, 2))); err != nil {
			return err
		}
	}
	h.Set("Cache-Control", "no-store")
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // not every writer has deadlines
	_, err = w.Write(out.Bytes())
	return err
}

// profileCPU measures the CPU for a while. The process has one such profile at a time.
func profileCPU(ctx context.Context, out *bytes.Buffer, during time.Duration) error {
	if err := pprof.StartCPUProfile(out); err != nil {
		return problemf(http.StatusConflict, "the CPU is being measured already: ask again once that has ended")
	}
	defer pprof.StopCPUProfile()
	timer := time.NewTimer(during)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

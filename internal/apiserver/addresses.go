package apiserver

import (
	"net/http"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// listAddresses lists where the healthy tasks of a service are reached.
func (s *Server) listAddresses(w http.ResponseWriter, r *http.Request) error {
	owner := cluster.OwnerRef{Kind: cluster.KindService, Cluster: r.PathValue("cluster"), Name: r.PathValue("service")}
	snap, err := s.snapshot(r)
	if err != nil {
		return err
	}
	if _, ok := snap.Service(owner.Cluster, owner.Name); !ok {
		return notFound("service", owner.Cluster+"/"+owner.Name)
	}
	return serveList(s, w, r, func(snap *store.Snapshot) []keyed[api.Address] { return healthyAddresses(snap, owner) })
}

// ends reports whether a task is about to end. One that asks whether it may, and has no permit, goes on (P5.2); an agent that does
// not ask ends it at once.
func ends(stop *cluster.Stop, o *cluster.Observed) bool {
	return stop != nil && (stop.Class != cluster.StopVoluntary || o.Ask == "" || stop.Permit == o.Ask)
}

// healthyAddresses lists the healthy tasks that are not about to end. Those of nodes that fell silent are left out, unless there are no
// others: then it is more likely that this server does not hear the nodes.
func healthyAddresses(snap *store.Snapshot, owner cluster.OwnerRef) []keyed[api.Address] {
	var heard, silent []keyed[api.Address]
	canary := uint64(0)
	if e, ok := snap.Rollout(owner.Cluster, owner.Name); ok && e.Value.State == cluster.RolloutCanary {
		canary = e.Value.Generation
	}
	for row := range snap.Attempts(owner) {
		o, d := row.Observed, row.Desired
		if !o.Healthy() || o.Gone || d == nil || d.UUID != o.UUID || ends(d.Stop, o) {
			continue
		}
		node, known := snap.Node(row.Node)
		status, registered := snap.NodeStatus(row.Node)
		if !known || !registered || node.Value.State == cluster.NodeDown {
			continue
		}
		parts, _ := row.Task.Parts()
		a := keyed[api.Address]{taskKey(row.Task, row.Number), api.Address{
			Task: row.Task, Attempt: row.Number, Node: row.Node, Address: status.Value.Facts.Address, Ports: d.Ports,
			Definition: d.Definition, Generation: parts.Generation, Canary: canary != 0 && parts.Generation == canary,
		}}
		if node.Value.State == cluster.NodeSuspect {
			silent = append(silent, a)
		} else {
			heard = append(heard, a)
		}
	}
	if len(heard) == 0 {
		return silent
	}
	return heard
}

package store

import (
	"cmp"

	"github.com/berthd/berth/internal/cluster"
)

// Address is the network address of a task of a service.
type Address struct {
	Task    cluster.TaskID
	Attempt int
	Node    string
	// Address is the address of the node. Ports holds the numbers of the task's ports on the node, by name. The map is
	// shared with the record: callers must not change it.
	Address    string
	Ports      map[string]int
	Definition cluster.Ref
	// Health is that of the task. It is failing while the node waits to start the task again after a failure.
	Health cluster.Health
}

// HealthyAddresses lists the healthy tasks of a service that are not about to end, by task, then attempt. Tasks of
// silent nodes are left out unless all are on silent nodes: then this server has more likely lost its own connection.
//
// The result depends on the attempts of the service, and on the verdict and the address of their nodes. A caller that
// caches the result recomputes it when one of these changed.
func (s *Snapshot) HealthyAddresses(owner cluster.OwnerRef) []Address {
	return s.addresses(owner, func(h cluster.Health, _ *cluster.Desired) bool { return h == cluster.HealthHealthy })
}

// EndpointAddresses lists the tasks that an endpoint selects, as HealthyAddresses does. Ports has only the port of the
// endpoint; tasks without it are left out. The result depends on the same records, on the endpoint, and on the
// definitions of the tasks, which do not change.
func (s *Snapshot) EndpointAddresses(e *cluster.Endpoint) []Address {
	selected := map[cluster.Ref]bool{}
	selects := func(ref cluster.Ref) bool {
		yes, known := selected[ref]
		if !known {
			def, ok := s.Definition(ref)
			yes = ok && e.Selects(def.Value.Labels)
			selected[ref] = yes
		}
		return yes
	}
	list := s.addresses(e.Target(), func(h cluster.Health, d *cluster.Desired) bool {
		_, listens := d.Ports[e.Port]
		return (h == cluster.HealthHealthy || e.IncludesUnhealthy()) && listens &&
			(len(e.Tags) == 0 || selects(d.Definition))
	})
	for i := range list {
		list[i].Ports = map[string]int{e.Port: list[i].Ports[e.Port]}
	}
	return list
}

// addresses lists the tasks of a service that run, or that their nodes start again after a failure, and that are not
// about to end. Include decides about each by its health.
func (s *Snapshot) addresses(owner cluster.OwnerRef, include func(cluster.Health, *cluster.Desired) bool) []Address {
	var reachable, silent []Address
	for row := range s.Attempts(owner) {
		o, d := row.Observed, row.Desired
		if o == nil || o.Gone || d == nil || d.UUID != o.UUID || isEnding(d.Stop, o) {
			continue
		}
		health := healthOf(o)
		if health == "" || !include(health, d) {
			continue
		}
		node, known := s.Node(row.Node)
		status, registered := s.NodeStatus(row.Node)
		if !known || !registered || node.Value.State == cluster.NodeDown {
			continue
		}
		a := Address{row.Task, row.Number, row.Node, status.Value.Facts.Address, d.Ports, d.Definition, health}
		if node.Value.State == cluster.NodeSuspect {
			silent = append(silent, a)
		} else {
			reachable = append(reachable, a)
		}
	}
	if len(reachable) == 0 {
		return silent
	}
	return reachable
}

// healthOf returns the health of a task that runs, failing for one that its node starts again later, and "" for others.
func healthOf(o *cluster.Observed) cluster.Health {
	switch {
	case o.State == cluster.StateRunning:
		return cmp.Or(o.Health, cluster.HealthUnknown)
	case !o.State.Terminal() && o.State != cluster.StateStopping && !o.NextStart.IsZero():
		return cluster.HealthFailing
	}
	return ""
}

// isEnding reports whether a task is about to end. A task that requested a permit and has none continues (P5.2). A task
// that did not ask ends immediately.
func isEnding(stop *cluster.Stop, o *cluster.Observed) bool {
	return stop != nil && (stop.Class != cluster.StopVoluntary || o.Ask == "" || stop.Permit == o.Ask)
}

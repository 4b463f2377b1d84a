package store

import "github.com/berthd/berth/internal/cluster"

// Address is the network address of a healthy task of a service.
type Address struct {
	Task    cluster.TaskID
	Attempt int
	Node    string
	// Address is the address of the node. Ports holds the numbers of the task's ports on the node, by name. The map is
	// shared with the record: callers must not change it.
	Address    string
	Ports      map[string]int
	Definition cluster.Ref
}

// HealthyAddresses lists the healthy tasks of a service that are not about to end, by task, then attempt. Tasks of
// silent nodes are left out unless all are on silent nodes: then this server has more likely lost its own connection.
//
// The result depends on the attempts of the service, and on the verdict and the address of their nodes. A caller that
// caches the result recomputes it when one of these changed.
func (s *Snapshot) HealthyAddresses(owner cluster.OwnerRef) []Address {
	var reachable, silent []Address
	for row := range s.Attempts(owner) {
		o, d := row.Observed, row.Desired
		if !o.Healthy() || o.Gone || d == nil || d.UUID != o.UUID || isEnding(d.Stop, o) {
			continue
		}
		node, known := s.Node(row.Node)
		status, registered := s.NodeStatus(row.Node)
		if !known || !registered || node.Value.State == cluster.NodeDown {
			continue
		}
		a := Address{row.Task, row.Number, row.Node, status.Value.Facts.Address, d.Ports, d.Definition}
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

// isEnding reports whether a task is about to end. A task that requested a permit and has none continues (P5.2). A task
// that did not ask ends immediately.
func isEnding(stop *cluster.Stop, o *cluster.Observed) bool {
	return stop != nil && (stop.Class != cluster.StopVoluntary || o.Ask == "" || stop.Permit == o.Ask)
}

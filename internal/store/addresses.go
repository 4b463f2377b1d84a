package store

import "github.com/berthd/berth/internal/cluster"

// Address is where a healthy task of a service is reached.
type Address struct {
	Task    cluster.TaskID
	Attempt int
	Node    string
	// Address is the node's; Ports are the numbers of the task's ports there, by name. They are the record's: nobody
	// may change them.
	Address    string
	Ports      map[string]int
	Definition cluster.Ref
}

// HealthyAddresses lists the healthy tasks of a service that are not about to end, by task, then attempt. Those of
// nodes that fell silent are left out, unless there are no others: then it is more likely that this server does not
// hear the nodes.
//
// What it reads are the attempts of the service, and of their nodes the verdict and the address: who keeps its answer
// looks again when one of these changed.
func (s *Snapshot) HealthyAddresses(owner cluster.OwnerRef) []Address {
	var heard, silent []Address
	for row := range s.Attempts(owner) {
		o, d := row.Observed, row.Desired
		if !o.Healthy() || o.Gone || d == nil || d.UUID != o.UUID || ends(d.Stop, o) {
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
			heard = append(heard, a)
		}
	}
	if len(heard) == 0 {
		return silent
	}
	return heard
}

// ends reports whether a task is about to end. One that asks whether it may, and has no permit, goes on (P5.2); an
// agent that does not ask ends it at once.
func ends(stop *cluster.Stop, o *cluster.Observed) bool {
	return stop != nil && (stop.Class != cluster.StopVoluntary || o.Ask == "" || stop.Permit == o.Ask)
}

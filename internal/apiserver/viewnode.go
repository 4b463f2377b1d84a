package apiserver

import (
	"maps"
	"slices"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// stateAbsent is shown for a node that the operator has settings for and no agent has registered.
const stateAbsent cluster.NodeState = "absent"

// nodeNames returns the names of all nodes that any record speaks of, ordered.
func nodeNames(snap *store.Snapshot) []string {
	names := map[string]bool{}
	for e := range snap.Hosts() {
		names[e.Value.Name] = true
	}
	for e := range snap.Nodes() {
		names[e.Value.Name] = true
	}
	for e := range snap.NodeStatuses() {
		names[e.Value.Name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// nodeView shows a node; ok is false if no record speaks of it.
func nodeView(snap *store.Snapshot, name string) (v api.NodeView, ok bool) {
	host, hasHost := snap.Host(name)
	node, hasNode := snap.Node(name)
	status, hasStatus := snap.NodeStatus(name)
	v = api.NodeView{Name: name, State: stateAbsent, Domain: cluster.DefaultDomain, Revision: host.Modified}
	if hasStatus {
		v.State = cluster.NodeJoining
		v.Facts, v.Session, v.Since = status.Value.Facts, status.Value.Session, status.Value.Registered
		v.Total = cluster.Demand{CPU: v.Facts.CPU, Memory: v.Facts.Memory, Disk: v.Facts.Disk}
	} else {
		v.Reason = "no agent has registered under this name"
	}
	if hasNode {
		v.State, v.Reason, v.Since, v.Domain = node.Value.State, node.Value.Reason, node.Value.Since, node.Value.Domain
	}
	v.Labels = maps.Clone(v.Facts.Labels)
	if hasHost {
		v.Cordon = host.Value.Cordon
		if host.Value.Domain != "" && !hasNode {
			v.Domain = host.Value.Domain
		}
		for key, value := range host.Value.Labels { // order-free: a map is filled
			if v.Labels == nil {
				v.Labels = cluster.Labels{}
			}
			v.Labels[key] = value
		}
	}
	for row := range snap.NodeAttempts(name) {
		if !row.Standing() || row.Observed != nil && row.Observed.Gone {
			continue
		}
		v.Tasks++
		if row.Desired == nil {
			continue
		}
		if def, ok := snap.Definition(row.Desired.Definition); ok {
			v.Reserved = v.Reserved.Add(def.Value.Demand())
		}
	}
	return v, hasHost || hasNode || hasStatus
}

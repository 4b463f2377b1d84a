package views

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
)

// NodeNames returns the names of all nodes in any record, in order.
func NodeNames(snap *store.Snapshot) []string {
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

// CountNodes counts a domain's nodes by their state.
func CountNodes(snap *store.Snapshot, domain string) map[cluster.NodeState]int {
	return CountNodesByDomain(snap)[domain]
}

// CountNodesByDomain counts the nodes of each domain by their state.
func CountNodesByDomain(snap *store.Snapshot) map[string]map[cluster.NodeState]int {
	counts := map[string]map[cluster.NodeState]int{}
	for _, name := range NodeNames(snap) {
		state, domain, _ := NodeState(snap, name)
		if counts[domain] == nil {
			counts[domain] = map[cluster.NodeState]int{}
		}
		counts[domain][state]++
	}
	return counts
}

// NodeState returns the state of a node and its domain; ok is false if no record names the node.
func NodeState(snap *store.Snapshot, name string) (state cluster.NodeState, domain string, ok bool) {
	if e, ok := snap.Node(name); ok {
		return e.Value.State, e.Value.Domain, true
	}
	domain = cluster.DefaultDomain
	host, ok := snap.Host(name)
	if ok && host.Value.Domain != "" {
		domain = host.Value.Domain
	}
	if _, registered := snap.NodeStatus(name); registered {
		return cluster.NodeJoining, domain, true
	}
	return cluster.NodeAbsent, domain, ok
}

// Node shows a node with its last report to this server; ok is false if no record names the node.
func (s *Source) Node(snap *store.Snapshot, name string) (api.NodeView, bool) {
	v, ok := recordedNode(snap, name)
	if e, has := snap.Host(name); has {
		v.Gone = e.Value.Gone
		if e.Value.Drain != nil {
			v.Drain = drainView(snap, name, e.Value.Drain)
		}
	}
	if s.DialProblem != nil && v.Dial != "" {
		v.DialProblem = s.DialProblem(name)
	}
	if p, reported := s.Tables.Pulse(name); reported && p.Session == v.Session {
		if s.Holder != nil {
			v.Server = s.Holder(name)
		}
		v.Used = withoutTasks(p.Stats)
		v.Heartbeat = &api.Heartbeat{
			Age:      cluster.Duration(max(0, s.Clock()-p.At).Round(time.Millisecond)),
			Interval: cluster.Duration(p.Next),
		}
	}
	return v, ok
}

// KeptRoom shows the room that services keep on a node. It reads all services, so lists of nodes do without it.
func KeptRoom(snap *store.Snapshot, node string) (all []api.KeptRoom) {
	for e := range snap.Services("") {
		if !e.Value.KeepRoom || e.Value.BoundNode() != node {
			continue
		}
		if k, keeps := observe.KeptRoom(snap, e.Value.Owner()); keeps {
			slices.Sort(k.Ports)
			all = append(all, api.KeptRoom{Owner: &k.Owner, Demand: k.Demand, Ports: k.Ports, Devices: k.Devices})
		}
	}
	slices.SortFunc(all, func(a, b api.KeptRoom) int {
		return cmp.Or(strings.Compare(a.Owner.Cluster, b.Owner.Cluster), strings.Compare(a.Owner.Name, b.Owner.Name))
	})
	return all
}

// withoutTasks returns a node's usage without that of its tasks, which their own views show.
func withoutTasks(stats *cluster.NodeStats) *cluster.NodeStats {
	if stats == nil || stats.Each == nil {
		return stats
	}
	all := *stats
	all.Each = nil
	return &all
}

// SteadyNode returns a node's view without the fields that change all the time.
func SteadyNode(v api.NodeView) api.NodeView {
	v.Used, v.Heartbeat, v.DialProblem = nil, nil, ""
	return v
}

// recordedNode shows a node as its records have it.
func recordedNode(snap *store.Snapshot, name string) (v api.NodeView, ok bool) {
	host, hasHost := snap.Host(name)
	node, hasNode := snap.Node(name)
	status, hasStatus := snap.NodeStatus(name)
	v = api.NodeView{Name: name, State: cluster.NodeAbsent, Domain: cluster.DefaultDomain, Revision: host.Modified}
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
	if hasHost && host.Value.Released != 0 && !hasStatus {
		v.Reason = "it was released to another owner"
	}
	if hasHost {
		v.Cordon, v.Pool, v.Taints = host.Value.Cordon, host.Value.Pool, host.Value.Taints
		v.ReservedPorts, v.Setup, v.Dial = host.Value.ReservedPorts, host.Value.Setup, host.Value.Dial
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
		if !observe.HoldsRoom(row) {
			continue
		}
		v.Tasks++
		if row.Desired == nil {
			continue
		}
		for _, u := range row.Desired.Devices {
			if hasStatus && !slices.ContainsFunc(v.Facts.Devices, func(d cluster.Device) bool { return d.ID == u.ID }) {
				v.LostDevices = append(v.LostDevices, api.LostDevice{ID: u.ID, Task: row.Task})
			}
		}
		if def, ok := snap.Definition(row.Desired.Definition); ok {
			v.Reserved = v.Reserved.Add(def.Value.Demand())
		}
	}
	slices.SortFunc(v.LostDevices, func(a, b api.LostDevice) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), strings.Compare(string(a.Task), string(b.Task)))
	})
	return v, hasHost || hasNode || hasStatus
}

package store

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// fleetTables hold the nodes, their pools and reservations, and the moves of tasks between them.
type fleetTables struct {
	pools      table[cluster.Pool]
	profiles   table[cluster.Profile]
	hosts      table[cluster.Host]
	nodes      table[cluster.Node]
	statuses   table[cluster.NodeStatus]
	rebalances table[cluster.Rebalancing]
	reserved   table[cluster.Reservation]
}

// Profile returns a version of a profile of machines.
func (f *fleetTables) Profile(ref cluster.Ref) (Entry[cluster.Profile], bool) {
	return f.profiles.Get(ref.Name + "/" + strconv.Itoa(ref.Version))
}

// Profiles returns all versions of the profiles with a name, or of all profiles without one, by name. The versions of a
// profile are in no order.
func (f *fleetTables) Profiles(name string) iter.Seq[Entry[cluster.Profile]] {
	if name == "" {
		return scan(f.profiles, "")
	}
	return scan(f.profiles, name+"/")
}

// Host returns the operator's settings of a node.
func (f *fleetTables) Host(name string) (Entry[cluster.Host], bool) { return f.hosts.Get(name) }

// Hosts returns the operator's settings of all nodes that have settings.
func (f *fleetTables) Hosts() iter.Seq[Entry[cluster.Host]] { return scan(f.hosts, "") }

// PoolNodes returns the names of the nodes in a pool, in their order. Forgotten nodes do not count.
func (f *fleetTables) PoolNodes(pool string) (names []string) {
	for e := range f.Hosts() {
		if e.Value.Pool == pool && !e.Value.Gone {
			names = append(names, e.Value.Name)
		}
	}
	return names
}

// PoolSizes returns the number of nodes of each pool that has nodes. Forgotten nodes do not count.
func (f *fleetTables) PoolSizes() map[string]int {
	sizes := map[string]int{}
	for e := range f.Hosts() {
		if e.Value.Pool != "" && !e.Value.Gone {
			sizes[e.Value.Pool]++
		}
	}
	return sizes
}

// Node returns the control plane's verdict on a node.
func (f *fleetTables) Node(name string) (Entry[cluster.Node], bool) { return f.nodes.Get(name) }

// Nodes returns the verdicts on all nodes.
func (f *fleetTables) Nodes() iter.Seq[Entry[cluster.Node]] { return scan(f.nodes, "") }

// NodeStatus returns the registration of a node's agent.
func (f *fleetTables) NodeStatus(name string) (Entry[cluster.NodeStatus], bool) {
	return f.statuses.Get(name)
}

// NodeStatuses returns the registrations of all nodes.
func (f *fleetTables) NodeStatuses() iter.Seq[Entry[cluster.NodeStatus]] { return scan(f.statuses, "") }

// Rebalancing returns a rebalancing, running or finished.
func (f *fleetTables) Rebalancing(id uint64) (Entry[cluster.Rebalancing], bool) {
	return f.rebalances.Get(rebalancingKey(id))
}

// Rebalancings returns the rebalancings of all domains, the oldest first.
func (f *fleetTables) Rebalancings() iter.Seq[Entry[cluster.Rebalancing]] {
	return scan(f.rebalances, "")
}

// RunningRebalancing returns the running rebalancing of a domain, if there is one.
func (f *fleetTables) RunningRebalancing(domain string) (Entry[cluster.Rebalancing], bool) {
	for e := range f.Rebalancings() {
		if e.Value.Domain == domain && e.Value.Running() {
			return e, true
		}
	}
	return Entry[cluster.Rebalancing]{}, false
}

// Reservation returns a reservation of nodes.
func (f *fleetTables) Reservation(name string) (Entry[cluster.Reservation], bool) {
	return f.reserved.Get(name)
}

// Reservations returns all reservations by name, including those that are over.
func (f *fleetTables) Reservations() iter.Seq[Entry[cluster.Reservation]] {
	return scan(f.reserved, "")
}

// Reserved returns the reservations of a domain that are not over, by node, ordered by their beginning. The
// reservations are shared with the tables: callers must not change them.
func (f *fleetTables) Reserved(domain string, now time.Time) map[string][]*cluster.Reservation {
	at := map[string][]*cluster.Reservation{}
	for e := range f.Reservations() {
		r := e.Value
		if r.Domain != domain || r.Over(now) {
			continue
		}
		for _, name := range r.Nodes {
			at[name] = append(at[name], r)
		}
	}
	for _, list := range at { // order-free: lists are independent
		slices.SortFunc(list, func(a, b *cluster.Reservation) int {
			return cmp.Or(a.From.Compare(b.From), strings.Compare(a.Name, b.Name))
		})
	}
	return at
}

func rebalancingKey(id uint64) string {
	n := strconv.FormatUint(id, 10)
	return "00000000000000000000"[len(n):] + n
}

package fleet

import (
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/index"
)

// KeptRoom is the room that a service keeps on its node while it runs no task there. It counts against the capacity of
// the node and nowhere else: it is no task.
type KeptRoom struct {
	Owner  cluster.OwnerRef
	Node   string
	Demand cluster.Demand
	// Ports are the fixed ports of its task.
	Ports []int
}

// Keep charges the room of a service to its node, which need not be set yet. It replaces what the service kept before.
func (f *Fleet) Keep(k KeptRoom) {
	f.EndKeep(k.Owner)
	k.Demand = index.Clamp(k.Demand)
	if f.kept == nil {
		f.kept = map[cluster.OwnerRef]KeptRoom{}
	}
	f.kept[k.Owner] = k
	i := f.slot(k.Node)
	f.charge(i, f.loads[i].Used.Add(k.Demand), 1, false)
	for _, p := range k.Ports {
		f.ports(i).Add(p)
	}
}

// EndKeep releases the room of a service, and returns it. It is false for a service that keeps none.
func (f *Fleet) EndKeep(o cluster.OwnerRef) (KeptRoom, bool) {
	k, found := f.kept[o]
	if !found {
		return KeptRoom{}, false
	}
	delete(f.kept, o)
	i := f.byName[k.Node]
	f.charge(i, f.loads[i].Used.Sub(k.Demand), -1, false)
	for _, p := range k.Ports {
		f.ports(i).Remove(p)
	}
	f.vacate(i)
	return k, true
}

// Kept returns the room that a service keeps.
func (f *Fleet) Kept(o cluster.OwnerRef) (KeptRoom, bool) {
	k, found := f.kept[o]
	return k, found
}

// KeepsRoom reports whether any service keeps room.
func (f *Fleet) KeepsRoom() bool { return len(f.kept) > 0 }

// KeptText names the services that keep some of a resource of a node, "" if none does. A port other than 0 is the
// resource; otherwise amount returns that of the demand.
func (f *Fleet) KeptText(node string, port int, amount func(cluster.Demand) int64) string {
	var names []string
	for o, k := range f.kept { // order-free: sorted below
		if k.Node != node || port != 0 && !slices.Contains(k.Ports, port) ||
			port == 0 && amount(k.Demand) == 0 {
			continue
		}
		names = append(names, o.Cluster+"/"+o.Name)
	}
	slices.SortFunc(names, strings.Compare)
	const most = 3
	switch {
	case len(names) == 0:
		return ""
	case len(names) == 1:
		return "kept for the service " + names[0] + ", which keeps its room"
	}
	more := ""
	if len(names) > most {
		names, more = names[:most], " and others"
	}
	return "kept for the services " + strings.Join(names, ", ") + more + ", which keep their room"
}

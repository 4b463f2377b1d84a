package fleet

import (
	"github.com/berthd/berth/internal/cluster"
)

// Load is the capacity and usage of a node. It is apart from slot because cycles copy the loads that they change.
type Load struct {
	Capacity, Used cluster.Demand
	Key            [orders]uint64 // its keys in the trees of its node class
	at             [orders]uint64 // the keys by which the trees hold it
	stale          uint8          // in a cycle: bits of the orders whose trees hold an older state
	Tasks          int32
	Class          int32  // the node class; -1 if the node is not set
	Turn           int32  // in a cycle: the number of touches up to the node's last
	DeviceClass    int32  // the device class; -1 if none
	deviceClassKey uint64 // the key by which the tree of its device class holds it
}

// Free returns what is free on the node. It is negative where the node is overcommitted.
func (l *Load) Free() cluster.Demand { return l.Capacity.Sub(l.Used) }

// The orders of the nodes of a node class, each kept in a tree.
const (
	ByFill    = iota // emptiest first
	ByBalance        // the most memory used in relation to CPU first
	orders
)

package machine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/berthd/berth/internal/agent/network"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
)

// networkTimeout limits the removal of an attempt's network.
const networkTimeout = 2 * time.Minute

// Networks makes the networks of tasks that do not use their node's network. All methods may be called concurrently.
type Networks interface {
	// Facts returns the networks that tasks can have, and what the machine lacks for the others. Facts must be called
	// before the other methods.
	Facts(ctx context.Context) []cluster.NetworkFact
	// Join returns the file of the attempt's network namespace, and creates the network if it does not exist.
	Join(ctx context.Context, t network.Task) (string, error)
	// Leave removes all that Join made for an attempt. It does nothing if nothing is left.
	Leave(ctx context.Context, uuid string) error
	// Sweep removes networks without a known attempt and without a program, and repairs what other programs removed.
	Sweep(ctx context.Context, known func(uuid string) bool) error
	// Close releases the resources of Facts. The networks of Join stay.
	Close() error
}

// TaskNetworks gives tasks the networks that the machine can make. Its methods may be called concurrently, except
// AddFacts.
type TaskNetworks struct {
	node *node.Node
	// networks is nil if the node makes none.
	networks Networks
	// lacking holds, for each network mode, what the machine lacks for it. It belongs to AddFacts.
	lacking map[cluster.NetworkMode]string
}

// NewTaskNetworks returns the networks of tasks. Nil networks mean that the node makes none.
func NewTaskNetworks(n *node.Node, networks Networks) *TaskNetworks {
	return &TaskNetworks{node: n, networks: networks, lacking: map[cluster.NetworkMode]string{}}
}

// AddFacts determines which networks tasks can have, and logs once what the machine lacks.
func (n *TaskNetworks) AddFacts(ctx context.Context, f *cluster.Facts) {
	if n.networks == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	f.Networks = n.networks.Facts(ctx)
	if invalid := f.Validate(); invalid != nil { // servers would refuse the node
		n.node.Logger.Warn("the facts about the machine's networks are invalid and are not reported", "error", invalid)
		f.Networks = nil
	}
	for _, fact := range f.Networks {
		lacks := cluster.LacksNetwork(f.Networks, fact.Mode)
		if lacks != n.lacking[fact.Mode] && lacks != "" {
			n.node.Logger.Info("tasks with a network of their own are not placed here", "because", lacks)
		}
		n.lacking[fact.Mode] = lacks
	}
}

// Sweep removes the networks of unknown attempts, at the beginning and regularly, until ctx ends. All records of
// attempts must be known by then.
func (n *TaskNetworks) Sweep(ctx context.Context, known func(uuid string) bool) {
	for {
		if err := n.networks.Sweep(ctx, known); err != nil && ctx.Err() == nil {
			n.node.Logger.Warn("networks of tasks could not be repaired; the agent tries again", "error", err)
		}
		if pause.For(ctx, probeInterval) != nil {
			return
		}
	}
}

// Close releases the resources of AddFacts. The networks of attempts stay.
func (n *TaskNetworks) Close() {
	if n.networks == nil {
		return
	}
	if err := n.networks.Close(); err != nil {
		n.node.Logger.Warn("the networks of tasks were not closed", "error", err)
	}
}

// Connect creates the attempt's network if it needs its own, and returns the network's file, or "".
func (n *TaskNetworks) Connect(ctx context.Context, d *cluster.Desired, def *cluster.TaskDefinition) (string, error) {
	mode := def.OwnNetwork()
	if mode == "" {
		return "", nil
	}
	if n.networks == nil {
		return "", fmt.Errorf("network %s: the agent has none for tasks", mode)
	}
	want := network.Task{UUID: d.UUID, Mode: mode}
	for _, name := range slices.Sorted(maps.Keys(d.Ports)) {
		want.Ports = append(want.Ports, network.Port{Node: d.Ports[name], Inside: def.PortInside(name, d.Ports[name])})
	}
	return n.networks.Join(ctx, want)
}

// Disconnect removes the attempt's network. It does nothing if the attempt has none.
func (n *TaskNetworks) Disconnect(ctx context.Context, uuid string) error {
	if n.networks == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, networkTimeout)
	defer cancel()
	return n.networks.Leave(ctx, uuid)
}

package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/internal/agent/network"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

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

// probeNetworks determines which networks tasks can have, and logs once what the machine lacks.
func (a *Agent) probeNetworks(ctx context.Context, f *cluster.Facts) {
	if a.Networks == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	f.Networks = a.Networks.Facts(ctx)
	if invalid := f.Validate(); invalid != nil { // servers would refuse the node
		a.Logger.Warn("the facts about the machine's networks are invalid and are not reported", "error", invalid)
		f.Networks = nil
	}
	a.machine.mu.Lock()
	defer a.machine.mu.Unlock()
	for _, n := range f.Networks {
		lacks := cluster.LacksNetwork(f.Networks, n.Mode)
		if lacks != a.machine.lacking[n.Mode] && lacks != "" {
			a.Logger.Info("tasks with a network of their own are not placed here", "because", lacks)
		}
		if a.machine.lacking == nil {
			a.machine.lacking = map[cluster.NetworkMode]string{}
		}
		a.machine.lacking[n.Mode] = lacks
	}
}

// sweepNetworks removes leftovers of earlier runs of the agent, at the beginning and regularly, until ctx ends. All
// records of attempts are known by then.
func (a *Agent) sweepNetworks(ctx context.Context) {
	known := func(uuid string) bool { return a.task("", uuid) != nil || a.orphans.has(uuid) }
	for {
		if err := a.Networks.Sweep(ctx, known); err != nil && ctx.Err() == nil {
			a.Logger.Warn("networks of tasks could not be repaired; the agent tries again", "error", err)
		}
		timer := time.NewTimer(probeInterval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// connect creates the attempt's network if it needs its own, and returns the network's file, or "".
func (t *task) connect(ctx context.Context, d *cluster.Desired, def *cluster.TaskDefinition) (string, error) {
	mode := def.OwnNetwork()
	if mode == "" {
		return "", nil
	}
	if t.agent.Networks == nil {
		return "", fmt.Errorf("network %s: the agent has none for tasks", mode)
	}
	want := network.Task{UUID: t.uuid, Mode: mode}
	for _, name := range sortedKeys(d.Ports) {
		want.Ports = append(want.Ports, network.Port{Node: d.Ports[name], Inside: def.PortInside(name, d.Ports[name])})
	}
	return t.agent.Networks.Join(ctx, want)
}

// networkReason returns why the node cannot give the attempt its network, or "".
func (a *Agent) networkReason(def *cluster.TaskDefinition) string {
	return cluster.LacksNetwork(a.machine.facts().Networks, def.OwnNetwork())
}

// disconnect removes the attempt's network.
func (t *task) disconnect(ctx context.Context) error {
	if t.agent.Networks == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	return t.agent.Networks.Leave(ctx, t.uuid)
}

// Resolver files of the machine. The second one, of systemd-resolved, lists the resolvers that it asks itself.
const (
	resolverFile = "/etc/resolv.conf"
	outwardFile  = "/run/systemd/resolve/resolv.conf"
)

// outwardResolverMount returns a replacement for the node's resolver file in a container behind a bridge. It is needed
// if the file names only the node's loopback, which the container cannot reach.
func outwardResolverMount(def *cluster.TaskDefinition, c *cluster.Container,
	read func(name string) ([]byte, error),
) []executor.Mount {
	if def.Network != cluster.NetworkBridge || ownResolver(c) {
		return nil
	}
	usual, err := read(resolverFile)
	if err != nil || namesOutward(usual) {
		return nil
	}
	if outward, err := read(outwardFile); err != nil || !namesOutward(outward) {
		return nil
	}
	return []executor.Mount{{Source: outwardFile, Path: resolverFile, ReadOnly: true}}
}

// ownResolver reports whether a container brings its own resolver file.
func ownResolver(c *cluster.Container) bool {
	return slices.ContainsFunc(c.Mounts, func(m cluster.Mount) bool { return m.Path == resolverFile }) ||
		slices.ContainsFunc(c.Files, func(f cluster.File) bool { return f.Path == resolverFile })
}

// namesOutward reports whether a resolver file names a server beyond the machine's loopback.
func namesOutward(text []byte) bool {
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if addr, err := netip.ParseAddr(words[1]); err == nil && !addr.IsLoopback() {
			return true
		}
	}
	return false
}

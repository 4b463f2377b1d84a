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

// Networks makes the networks of tasks that do not see their node's. All methods may be called concurrently.
type Networks interface {
	// Facts tells which networks tasks can have, and what the machine lacks for the others. The other methods work once
	// it was called.
	Facts(ctx context.Context) []cluster.NetworkFact
	// Join returns the file of the attempt's network namespace, which it makes unless it stands.
	Join(ctx context.Context, t network.Task) (string, error)
	// Leave removes all that Join made for an attempt; where there is nothing it does nothing.
	Leave(ctx context.Context, uuid string) error
	// Sweep removes what belongs to no attempt that is known and that no program is in, and mends what others took
	// away.
	Sweep(ctx context.Context, known func(uuid string) bool) error
	// Close lets go of what Facts took. What Join made stays.
	Close() error
}

// lookForNetworks finds out which networks tasks can have, and says once what the machine lacks.
func (a *Agent) lookForNetworks(ctx context.Context, f *cluster.Facts) {
	if a.Networks == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	f.Networks = a.Networks.Facts(ctx)
	if invalid := f.Validate(); invalid != nil { // servers would refuse the node
		a.Logger.Warn("what the machine tells of networks cannot be told", "error", invalid)
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

// sweepNetworks removes at the beginning, and now and then, what an earlier life of the agent left half done, until ctx
// ends. All records of attempts are known by then.
func (a *Agent) sweepNetworks(ctx context.Context) {
	known := func(uuid string) bool { return a.task("", uuid) != nil || a.found.has(uuid) }
	for {
		if err := a.Networks.Sweep(ctx, known); err != nil && ctx.Err() == nil {
			a.Logger.Warn("networks of tasks are not as they should be; it is tried again", "error", err)
		}
		timer := time.NewTimer(lookInterval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// connect makes the attempt's network where it has its own, and returns its file, or "".
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
		want.Ports = append(want.Ports, network.Port{Node: d.Ports[name], Inside: def.Inside(name, d.Ports[name])})
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

// Files that say who answers for names. The second is that of systemd-resolved, which lists those that it asks itself.
const (
	resolverFile = "/etc/resolv.conf"
	outwardFile  = "/run/systemd/resolve/resolv.conf"
)

// resolver returns what a container behind a bridge sees instead of the node's resolver file, where that names none but
// the node's loopback, which it does not reach.
func resolver(def *cluster.TaskDefinition, c *cluster.Container,
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

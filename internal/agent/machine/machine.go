// Package machine knows the machine of an agent: its facts, its executors, its devices, and the networks that it can
// make. It probes the machine regularly and reports changes.
package machine

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/internal/agent/devices"
	"github.com/berthd/berth/internal/agent/facts"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
)

// How often the agent probes its machine: rarely, and each node.FastProbeInterval while an executor fails.
const (
	probeInterval = time.Minute
	probeTimeout  = 10 * time.Second
)

// Config configures the facts about the machine.
type Config struct {
	// Labels and Version are reported with the facts; Version is the agent's.
	Labels  cluster.Labels
	Version string
	// CPU, Memory, Disk and Address, unless empty, are reported instead of the machine's.
	CPU     cluster.MilliCPU
	Memory  cluster.Bytes
	Disk    cluster.Bytes
	Address string
	// ReservedPorts are ports that programs other than tasks use.
	ReservedPorts []int
	// Facts measures the machine. The agent uses the result even with an error. Default: the machine's.
	Facts func(dir string) (cluster.Facts, error)
	// Devices, unless nil, finds the machine's devices. The agent uses the result even with an error.
	Devices func(ctx context.Context) ([]devices.Device, error)
	// Networks, unless nil, makes the networks of tasks that have their own; without it the agent refuses such tasks.
	Networks Networks
}

// Source adds facts about the machine to those that earlier sources found. One goroutine at a time calls it.
type Source interface {
	AddFacts(ctx context.Context, f *cluster.Facts)
}

// Machine holds the newest facts about the machine. One goroutine probes; all others may read the facts and request a
// probe.
type Machine struct {
	node      *node.Node
	config    Config
	sources   []Source // in the order of their calls
	executors *Executors
	images    *Images

	probeNow chan struct{} // capacity 1: a change is known

	mu    sync.Mutex
	known cluster.Facts
}

// SetDefaults sets the settings that are missing.
func (c *Config) SetDefaults() {
	if c.Facts == nil {
		c.Facts = facts.Gather
	}
}

// New returns a machine without facts. The sources add facts in their order.
func New(n *node.Node, c Config, e *Executors, images *Images, sources ...Source) *Machine {
	return &Machine{node: n, config: c, executors: e, images: images, sources: sources}
}

// Begin prepares for a run of the agent.
func (m *Machine) Begin() { m.probeNow = make(chan struct{}, 1) }

// Facts returns a copy of the facts.
func (m *Machine) Facts() cluster.Facts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known
}

// RequestProbe makes the agent probe its machine soon.
func (m *Machine) RequestProbe() { node.Nudge(m.probeNow) }

// Probe collects the facts of the machine and reports whether they changed, apart from free space.
func (m *Machine) Probe(ctx context.Context) bool {
	c := &m.config
	f, err := c.Facts(m.node.DataDir)
	if err != nil {
		m.node.Logger.Warn("not all facts of the machine are known", "error", err)
	}
	if c.CPU != 0 {
		f.CPU = c.CPU
	}
	if c.Memory != 0 {
		f.Memory = c.Memory
	}
	if c.Disk != 0 {
		f.Disk = c.Disk
	}
	if c.Address != "" {
		f.Address = c.Address
	}
	f.Labels, f.Version, f.ReservedPorts = c.Labels, c.Version, c.ReservedPorts
	for _, s := range m.sources {
		s.AddFacts(ctx, &f)
	}
	m.executors.probe(ctx, &f)
	images := m.images.probe(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	f.Images = m.images.toReport(images, &m.known)
	changed := !sameFacts(f, m.known)
	m.known = f
	return changed
}

// sameFacts compares all facts except free space, which changes all the time.
func sameFacts(f, g cluster.Facts) bool {
	f.Disks, g.Disks = slices.Clone(f.Disks), slices.Clone(g.Disks)
	for i := range f.Disks {
		f.Disks[i].Free = 0
	}
	for i := range g.Disks {
		g.Disks[i].Free = 0
	}
	return reflect.DeepEqual(f, g)
}

// Watch probes the machine regularly and passes changed facts to the function, until ctx ends.
func (m *Machine) Watch(ctx context.Context, changed func(cluster.Facts)) {
	for {
		wait := probeInterval
		if m.executors.failing() {
			wait = node.FastProbeInterval
		}
		if _, err := pause.Until(ctx, m.probeNow, wait); err != nil {
			return
		}
		if m.Probe(ctx) && ctx.Err() == nil {
			changed(m.Facts())
		}
	}
}

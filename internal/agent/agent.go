// Package agent runs the tasks of one node. It receives assignments from a server, moves each attempt one step at a
// time, and reports the state that it observes.
//
// The agent dials its server and registers; the registration begins a session. One stream brings assignments; reports
// go the other way, one at a time. Each attempt has a record (package attempt), which is kept on disk (package state).
// A goroutine for each attempt asks the record for the next step, performs the step with an executor, and records the
// result. Only the start barrier of batch tasks needs the server. Without a server the agent still restarts services,
// runs checks and completes accepted stops.
//
// The end of the agent ends no task. The next agent finds the records and the executors' containers, and continues.
package agent

import (
	"context"
	"errors"
	"path/filepath"
	"sync"

	"github.com/berthd/berth/internal/agent/addresses"
	"github.com/berthd/berth/internal/agent/diskspace"
	"github.com/berthd/berth/internal/agent/machine"
	"github.com/berthd/berth/internal/agent/nameserver"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/agent/pins"
	"github.com/berthd/berth/internal/agent/registrar"
	"github.com/berthd/berth/internal/agent/reports"
	"github.com/berthd/berth/internal/agent/state"
	"github.com/berthd/berth/internal/agent/task"
	"github.com/berthd/berth/internal/agent/usage"
	"github.com/berthd/berth/internal/agent/volumes"
	"github.com/berthd/berth/internal/telemetry"
)

// Agent runs the tasks of one node. It wires the parts of the node and runs them; each part has its own state.
type Agent struct {
	node     *node.Node
	config   Config
	machine  *machine.Machine
	networks *machine.TaskNetworks
	pins     *pins.Pins
	volumes  *volumes.Store
	sizes    *volumes.Sizes
	cleaner  *diskspace.Cleaner
	meter    *usage.NodeMeter
	requests *usage.RequestRates
	services *addresses.Directory
	names    *nameserver.Server
	// registrar is nil without a system for service discovery.
	registrar *registrar.Registrar
	logs      *logKeeper
	attempts  *attempts
	orphans   *orphans
	reports   *reports.Reports
	recovery  *recovery
	sessions  *sessions
	parts     *task.Parts
	// ownership and its changes are for readers of Observe.
	ownership *ownership
}

// New returns an agent; it starts nothing.
func New(c Config) (*Agent, error) {
	c.setDefaults()
	c.Logger = c.Logger.With(telemetry.KeyNode, c.Name)
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if dir, err := filepath.Abs(c.DataDir); err == nil {
		c.DataDir = dir
	}
	return wire(c), nil
}

// Run runs the node until ctx ends, and leaves the tasks running. It returns an error only if it cannot open or write
// the state on disk. It may be called again after it returned.
func (a *Agent) Run(ctx context.Context) error {
	path := filepath.Join(a.node.DataDir, "agent.db")
	if a.node.Volatile {
		path = ""
	}
	store, err := state.Open(path, a.node.Logger)
	if err != nil {
		return err
	}
	if a.node.Volatile && a.config.Outlives != nil {
		store = state.OpenMemory(a.config.Outlives, a.node.Logger)
	}
	saved, err := store.Load()
	if err != nil {
		return errors.Join(err, store.Close())
	}
	a.begin(store, &saved)

	var writer sync.WaitGroup
	written, stopWriter := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWriter()
	var writeErr error
	writer.Go(func() { writeErr = store.Run(written) })

	if l, ok := a.config.Source.(serverLearner); ok {
		l.Learn(saved.Mark.Servers)
	}
	a.watch(ctx)
	a.recovery.run(ctx, saved.Attempts)
	if a.registrar != nil {
		a.node.Go(func() { a.registrar.Run(ctx) })
	}
	if a.config.Machine.Networks != nil {
		known := func(uuid string) bool { return a.attempts.has(uuid) || a.orphans.has(uuid) }
		a.node.Go(func() { a.networks.Sweep(ctx, known) })
	}
	if len(a.config.CPUs) > 0 {
		a.node.Go(func() { a.pins.Watch(ctx) })
	}
	a.sessions.run(ctx)
	a.node.Wait()
	a.networks.Close()
	stopWriter()
	writer.Wait()
	return writeErr
}

// begin prepares the parts for a run that continues from the saved state.
func (a *Agent) begin(store *state.Store, saved *state.Saved) {
	marks := state.NewMarks(store, saved.Mark)
	a.parts.Store = store
	a.machine.Begin()
	a.pins.Begin()
	a.volumes.Begin()
	a.sizes.Begin()
	a.meter.Begin()
	a.attempts.begin(store, saved)
	a.reports.Begin(marks)
	a.orphans.begin(marks)
	a.sessions.begin(marks)
	a.ownership.begin(marks)
}

// watch probes and measures the machine once, and starts the parts that watch it until ctx ends.
func (a *Agent) watch(ctx context.Context) {
	a.machine.Probe(ctx)
	a.node.Go(func() { a.machine.Watch(ctx, a.reports.NewFacts) })
	if a.config.Measure.Stats != nil {
		a.meter.Measure()
		a.node.Go(func() { a.meter.Watch(ctx, a.reports.SendSoon) })
		a.node.Go(func() { a.requests.Watch(ctx) })
	}
	if a.node.Volatile {
		return
	}
	a.node.Go(func() { a.logs.watch(ctx) })
	a.node.Go(func() { a.sizes.Watch(ctx) })
	a.node.Go(func() { a.cleaner.Watch(ctx) })
	a.services.Load()
	a.node.Go(func() { a.services.Run(ctx) })
	a.names.Begin(ctx)
}

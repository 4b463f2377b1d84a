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
//
// # Metrics of tasks
//
// Agents keep counters and report rates. `cluster.Counts` never leaves the node. `cluster.UseDetail` holds rates over
// about ten seconds. It is sent when it changed by half and by a noticeable amount, with a report that is due anyway;
// it never causes one. CPU and memory are read every 2 s, the rest every 10 s for each attempt, spread over that time:
// 200 containers cost 16 ms in ten seconds. Prometheus reads the agents, at an address that is off by default and must
// be loopback without a token. A scrape returns the last measurement, so it costs none. Series are bounded to 1,000
// containers a node and fewer than 20 series each. The network belongs to a task and not to a container, and each
// namespace counts once. The owner is in the labels `service` or `job_name`, because Prometheus would rename a label
// `job`. Rates come from differences of the kernel's totals and not from `avg10`, so all cover the same time. Servers
// do not export metrics of tasks: they would be one page of a million lines, and no counter can be made of rates.
//
// # Names and services
//
// An address change costs the agent a copy of the list. Names are prepared at the first question after a change (0.16
// ms for both with 1,000 addresses; parsing a whole list takes 3 ms). The file for the agent's next life is written at
// most each second and takes a fiftieth of a core at most. A difference that does not fit changes nothing: the agent
// logs it and asks for whole lists until the end of the session. A file whose lists do not match their stamps is
// usable, but no base for differences. Tasks of a service restart by index after a change; one task rests 30 s between
// restarts, then ever longer.
//
// # Secrets
//
// A file's folder is bound into the container and not the file, because only then a replacement by rename is visible.
// The supervisor of the process executor reads variables from tmpfs when it starts the program. containerd keeps the
// description of a container on disk, so berth itself is bound into the container's /dev, reads the file and becomes
// the program; an image's program then needs memory for berth's start. The writer of a log reads the values at the
// first line, and again when a stat shows that a folder changed; no description holds a value. Writers of logs read
// present and former values by one function (executor.SecretValues).
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
	logs     *logKeeper
	attempts *attempts
	orphans  *orphans
	reports  *reports.Reports
	recovery *recovery
	sessions *sessions
	parts    *task.Parts
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
	a.attempts.begin(store, saved.Definitions)
	a.reports.Begin(marks)
	a.orphans.begin(marks)
	a.sessions.begin(marks)
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

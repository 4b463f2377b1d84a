package agent

import (
	"context"
	"path/filepath"

	"github.com/berthd/berth/internal/agent/addresses"
	"github.com/berthd/berth/internal/agent/artifact"
	"github.com/berthd/berth/internal/agent/nameserver"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/agent/requests"
	"github.com/berthd/berth/internal/cluster"
)

// wire makes the parts of an agent and connects them. The configuration is complete and valid.
func wire(c Config) *Agent {
	n := &node.Node{
		Name: c.Name, DataDir: c.DataDir, Volatile: c.Volatile, Logger: c.Logger, Boot: c.Clock.Boot,
		Random: c.Clock.Random, Without: c.Without,
	}
	a := &Agent{node: n, config: c}
	execs := newExecutors(n, c.Executors, c.Retired)
	provider, _ := c.Source.(secretSource)
	session := func() uint64 { return a.sessions.marks.Session() }
	memory := &secretMemory{node: n, given: c.Secrets.Dir, provided: provider != nil}

	a.attempts = &attempts{}
	a.orphans = &orphans{node: n, executors: execs, attempts: a.attempts}
	lent := newFolders(n, c.Volumes)
	a.volumes = &volumeStore{
		node: n, folders: lent, owner: execs, attempts: a.attempts.statuses, orphans: a.orphans.tasks,
		changed: func() { a.machine.requestProbe() },
	}
	a.sizes = &volumeSizes{node: n, store: a.volumes}
	a.networks = newTaskNetworks(n, c.Machine.Networks)
	found := newDeviceSet(n, c.Machine.Devices)
	a.machine = newMachine(n, c.Machine, execs, &imageFacts{node: n, executors: execs, used: a.attempts.images},
		found, memory, capabilities{services: canFollow(&c), artifacts: !c.Volatile}, a.volumes, a.networks)
	a.pins = &pins{node: n, cpus: c.CPUs, executors: execs, attempts: a.attempts.statuses}

	a.services = addresses.New(n)
	bridge, _ := c.Machine.Networks.(nameserver.Networks)
	a.names = nameserver.New(n, c.Names, a.services, bridge)
	specs := &specBuilder{
		node: n, facts: a.machine.facts, devices: found, pins: a.pins, folders: lent, names: a.names,
		credentials: c.Secrets.Credentials,
	}
	stats := &reportedStats{facts: a.machine.facts}
	window := &ttlWindow{node: n, opened: a.attempts.wakeUp}
	a.reports = &reports{node: n, source: c.Source, stats: stats, answered: window.extend}
	a.attempts.reports = a.reports
	inUse := &wanted{attempts: a.attempts.statuses}
	a.cleaner = &diskCleaner{
		node: n, config: c.Disks, executors: execs, artifacts: openArtifacts(&c), wanted: inUse, reported: stats.sweep,
		changed: a.machine.requestProbe,
	}
	imageRequests := &imageServer{
		node: n, executors: execs, wanted: inUse, changed: a.machine.requestProbe,
		logins: &registryLogins{node: n, source: provider, session: session, own: c.Secrets.Credentials},
	}
	a.requests = &requestRates{node: n, attempts: a.attempts.statuses, count: a.countRequests()}
	a.meter = &nodeMeter{
		node: n, config: c.Measure, facts: a.machine.facts, disks: a.cleaner, stats: stats,
		tasks: &taskMeter{
			node: n, executors: execs, attempts: a.attempts.statuses, requests: a.requests, storage: a.sizes,
			taken: c.Measure.Samples,
		},
	}
	a.logs = &logKeeper{node: n, has: a.attempts.has}

	a.parts = &Parts{
		Node: n, Reports: a.reports, Facts: a.machine.facts, Executors: execs, Volumes: a.volumes, Networks: a.networks,
		Pins: a.pins, Specs: specs, Artifacts: a.cleaner.artifacts,
		Secrets: &secretProvider{
			node: n, memory: memory, source: provider, session: session, own: c.Secrets.Credentials,
		},
		Services: &serviceProvider{node: n, directory: a.services, specs: specs, facts: a.machine.facts},
		Tracer:   c.Tracer, Checks: c.Checks, TTLWindow: window.current, Forget: a.attempts.remove,
	}
	a.recovery = &recovery{
		node: n, parts: a.parts, facts: a.machine.facts, executors: execs, attempts: a.attempts, orphans: a.orphans,
	}
	a.sessions = &sessions{
		node: n, source: c.Source, machine: a.machine, stats: stats, reports: a.reports, directory: a.services,
		orphans: a.orphans, attempts: a.attempts, window: window,
		assignments: &assignments{
			node: n, parts: a.parts, facts: a.machine.facts, attempts: a.attempts, orphans: a.orphans, reports: a.reports,
		},
		streams: &streamServer{
			node: n, source: c.Source, task: a.attempts.find, facts: a.machine.facts, images: imageRequests,
			volumes: &volumeServer{node: n, store: a.volumes, sizes: a.sizes},
		},
	}
	return a
}

// openArtifacts returns the node's store of artifacts. It touches no file before the first request.
func openArtifacts(c *Config) *artifact.Store {
	settings := c.Artifacts
	if settings.Dir == "" {
		settings.Dir = filepath.Join(c.DataDir, "artifacts")
	}
	if settings.Logger == nil {
		settings.Logger = c.Logger
	}
	return artifact.New(settings)
}

// countRequests returns the function that reads the request counters of programs.
func (a *Agent) countRequests() func(ctx context.Context, port int, m cluster.RequestCounter) (float64, error) {
	if given := a.config.Measure.Requests; given != nil {
		return given
	}
	reader := requests.New()
	return func(ctx context.Context, port int, m cluster.RequestCounter) (float64, error) {
		return reader.Count(ctx, a.machine.facts().Address, port, m)
	}
}

// capabilities are facts that follow from the agent's configuration.
type capabilities struct{ services, artifacts bool }

// AddFacts adds the capabilities.
func (c capabilities) AddFacts(_ context.Context, f *cluster.Facts) {
	f.Services, f.Artifacts = c.services, c.artifacts
}

// canFollow reports whether the agent can follow services.
func canFollow(c *Config) bool {
	_, asks := c.Source.(addresses.Source)
	return asks && !c.Volatile
}

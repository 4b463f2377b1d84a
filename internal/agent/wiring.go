package agent

import (
	"context"
	"path/filepath"
	"time"

	"github.com/berthd/berth/internal/agent/addresses"
	"github.com/berthd/berth/internal/agent/artifact"
	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/diskspace"
	"github.com/berthd/berth/internal/agent/images"
	"github.com/berthd/berth/internal/agent/machine"
	"github.com/berthd/berth/internal/agent/nameserver"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/agent/pins"
	"github.com/berthd/berth/internal/agent/registrar"
	"github.com/berthd/berth/internal/agent/reports"
	"github.com/berthd/berth/internal/agent/requests"
	"github.com/berthd/berth/internal/agent/secrets"
	"github.com/berthd/berth/internal/agent/services"
	"github.com/berthd/berth/internal/agent/streams"
	"github.com/berthd/berth/internal/agent/task"
	"github.com/berthd/berth/internal/agent/usage"
	"github.com/berthd/berth/internal/agent/volumes"
	"github.com/berthd/berth/internal/cluster"
)

// wire makes the parts of an agent and connects them. The configuration is complete and valid.
func wire(c Config) *Agent {
	n := &node.Node{
		Name: c.Name, DataDir: c.DataDir, Volatile: c.Volatile, Logger: c.Logger, Boot: c.Clock.Boot,
		Random: c.Clock.Random, Metrics: c.Metrics, Without: c.Without,
	}
	a := &Agent{node: n, config: c, ownership: &ownership{}}
	execs := machine.NewExecutors(n, c.Executors, c.Retired)
	provider, _ := c.Source.(secrets.Source)
	session := func() uint64 { return a.sessions.marks.Session() }
	memory := &secrets.Memory{Node: n, Given: c.Secrets.Dir, Provided: provider != nil}

	a.attempts = &attempts{}
	a.orphans = &orphans{node: n, executors: execs, attempts: a.attempts}
	lent := volumes.NewFolders(n, c.Volumes)
	a.volumes = &volumes.Store{
		Node: n, Folders: lent, Owner: execs, Attempts: a.attempts.statuses, Orphans: a.orphans.tasks,
		Changed: func() { a.machine.RequestProbe() },
	}
	a.sizes = &volumes.Sizes{Node: n, Store: a.volumes}
	a.networks, a.registrar = machine.NewTaskNetworks(n, c.Machine.Networks), a.newRegistrar(&c)
	found := machine.NewDevices(n, c.Machine.Devices)
	a.machine = machine.New(n, c.Machine, execs, &machine.Images{Node: n, Executors: execs, Used: a.attempts.images},
		found, memory, capabilitiesOf(&c), a.volumes, a.networks, a.registrar)
	a.pins = &pins.Pins{Node: n, CPUs: c.CPUs, Executors: execs, Attempts: a.attempts.statuses}

	a.services = addresses.New(n)
	bridge, _ := c.Machine.Networks.(nameserver.Networks)
	a.names = nameserver.New(n, c.Names, a.services, bridge)
	specs := &task.Specs{
		Node: n, Facts: a.machine.Facts, Devices: found, Pins: a.pins, Folders: lent, Names: a.names,
		Credentials: c.Secrets.Credentials,
	}
	stats := &usage.Statistics{Facts: a.machine.Facts}
	window := &ttlWindow{node: n, opened: a.attempts.wakeUp}
	a.attempts.reports = a.newReports(stats, window)
	a.reports = a.attempts.reports
	inUse := &images.Wanted{Attempts: a.attempts.statuses}
	a.cleaner = &diskspace.Cleaner{
		Node: n, Config: c.Disks, Executors: execs, Artifacts: openArtifacts(&c), Wanted: inUse,
		ReportedSweep: stats.Sweep, Changed: a.machine.RequestProbe,
	}
	imageRequests := &images.Server{
		Node: n, Executors: execs, Wanted: inUse, Changed: a.machine.RequestProbe,
		Logins: &secrets.Logins{Node: n, Source: provider, Session: session, Own: c.Secrets.Credentials},
	}
	a.requests = &usage.RequestRates{Node: n, Attempts: a.attempts.statuses, Count: a.countRequests()}
	a.meter = &usage.NodeMeter{
		Node: n, Config: c.Measure, Facts: a.machine.Facts, Disks: a.cleaner, Stats: stats,
		Tasks: &usage.TaskMeter{
			Node: n, Executors: execs, Attempts: a.attempts.statuses, Requests: a.requests, Storage: a.sizes,
			Samples: c.Measure.Samples,
		},
	}
	a.logs = &logKeeper{node: n, has: a.attempts.has, attempts: keepLogsAttempts}

	a.parts = &task.Parts{
		Node: n, Reports: a.reports, Facts: a.machine.Facts, Executors: execs, Volumes: a.volumes, Networks: a.networks,
		Pins: a.pins, Specs: specs, Artifacts: a.cleaner.Artifacts, Registrar: a.registrar, Forget: a.attempts.remove,
		Secrets: &secrets.Provider{
			Node: n, Memory: memory, Source: provider, Session: session, Own: c.Secrets.Credentials,
		},
		Services: &services.Provider{Node: n, Directory: a.services, Specs: specs, Facts: a.machine.Facts},
		Tracer:   c.Tracer, Checks: c.Checks.WithDefaults(a.attempts.programs), TTLWindow: window.current,
	}
	a.recovery = &recovery{
		node: n, parts: a.parts, facts: a.machine.Facts, executors: execs, attempts: a.attempts, orphans: a.orphans,
	}
	a.sessions = &sessions{
		node: n, source: c.Source, machine: a.machine, stats: stats, reports: a.reports, directory: a.services,
		orphans: a.orphans, attempts: a.attempts, window: window, ownership: a.ownership,
		assignments: &assignments{
			node: n, parts: a.parts, facts: a.machine.Facts, attempts: a.attempts, orphans: a.orphans,
			reports: a.reports,
		},
		streams: &streams.Server{
			Node: n, Source: c.Source, Task: a.attempts.find, Facts: a.machine.Facts, Images: imageRequests,
			Volumes: &volumes.Server{Node: n, Store: a.volumes, Sizes: a.sizes},
		},
	}
	return a
}

// capabilitiesOf returns what the configuration allows.
func capabilitiesOf(c *Config) capabilities {
	return capabilities{
		services: canFollow(c), artifacts: !c.Volatile,
		objects: !c.Volatile && c.Artifacts.ObjectStore.Endpoint != "",
	}
}

// newReports returns the reports of the agent.
func (a *Agent) newReports(stats *usage.Statistics, window *ttlWindow) *reports.Reports {
	return &reports.Reports{
		Node: a.node, Source: a.config.Source, Stats: stats, Changed: a.ownership.changes.note,
		Answered: func(asked time.Duration) {
			window.extend(asked)
			a.ownership.answered()
		},
	}
}

// newRegistrar returns the registrar of the agent, nil without a system for service discovery.
func (a *Agent) newRegistrar(c *Config) *registrar.Registrar {
	if c.Discovery == nil {
		return nil
	}
	return registrar.New(registrar.Config{
		Node: a.node, Driver: c.Discovery, Owner: c.DiscoveryOwner,
		Attempts: registrar.Attempts{
			All: a.attempts.statuses,
			Find: func(uuid string) (attempt.Status, bool) {
				t := a.attempts.find("", uuid)
				if t == nil {
					return attempt.Status{}, false
				}
				return t.Status(), true
			},
			Orphan: func(uuid string) bool { return a.orphans.has(uuid) },
		},
		Facts:   func() cluster.Facts { return a.machine.Facts() },
		Changed: func() { a.machine.RequestProbe() },
	})
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
	settings.Paths = c.Volumes.Paths
	return artifact.New(settings)
}

// countRequests returns the function that reads the request counters of programs.
func (a *Agent) countRequests() func(ctx context.Context, port int, m cluster.RequestCounter) (float64, error) {
	if given := a.config.Measure.Requests; given != nil {
		return given
	}
	reader := requests.New()
	return func(ctx context.Context, port int, m cluster.RequestCounter) (float64, error) {
		return reader.Count(ctx, a.machine.Facts().Address, port, m)
	}
}

// capabilities are facts that follow from the agent's configuration.
type capabilities struct{ services, artifacts, objects bool }

// AddFacts adds the capabilities.
func (c capabilities) AddFacts(_ context.Context, f *cluster.Facts) {
	f.Services, f.Artifacts, f.ImageSources, f.ObjectStore = c.services, c.artifacts, c.artifacts, c.objects
}

// canFollow reports whether the agent can follow services.
func canFollow(c *Config) bool {
	_, asks := c.Source.(addresses.Source)
	return asks && !c.Volatile
}

package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/berthd/berth/internal/agent/artifact"
	"github.com/berthd/berth/internal/agent/diskspace"
	"github.com/berthd/berth/internal/agent/machine"
	"github.com/berthd/berth/internal/agent/nameserver"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/agent/secrets"
	"github.com/berthd/berth/internal/agent/state"
	"github.com/berthd/berth/internal/agent/task"
	"github.com/berthd/berth/internal/agent/usage"
	"github.com/berthd/berth/internal/agent/volumes"
	"github.com/berthd/berth/internal/boottime"
	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/discovery"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/telemetry"
)

// Config configures an agent. Name, Source and one Executor are required, and DataDir unless Volatile is set.
type Config struct {
	// Name of the node.
	Name string
	// DataDir holds the agent's state, the tasks' directories and logs, and the volumes that it keeps.
	DataDir string
	// Volatile keeps the agent's state in memory only and makes no directories for containers. Simulations of many
	// nodes use it with executors that need no directories.
	Volatile bool
	// Outlives, unless nil, keeps the state of a Volatile agent from one run to the next.
	Outlives *state.Memory
	Source   Source
	// Executors are the executors that the node may have, the default first. The agent leaves out those that do not
	// work and probes them again.
	Executors []executor.Executor
	// Retired are executors that get no new tasks. Tasks that an earlier agent began with them stay with them to the
	// end.
	Retired []executor.Executor
	Logger  *slog.Logger // default: discard
	// Tracer records spans of the work on an assignment; nil records none.
	Tracer *telemetry.Tracer
	// Metrics counts what happens on the node; nil counts nothing.
	Metrics node.Metrics
	// Machine configures the facts about the machine.
	Machine machine.Config
	// Measure configures the measurements of the machine and of tasks.
	Measure usage.Config
	// Volumes are the folders that the node lends to tasks.
	Volumes volumes.Config
	// Disks are the fill levels of the disks of images and artifacts.
	Disks diskspace.Config
	// Artifacts limits the artifacts that the agent fetches for tasks. Default: as artifact.Config says, in a folder of
	// DataDir.
	Artifacts artifact.Config
	// CPUs are the CPUs that all tasks run on, in ascending order. They are required where the agent offers single
	// cores to tasks.
	CPUs []int
	// Names configures the answers to DNS questions.
	Names nameserver.Config
	// Secrets configures secrets and logins.
	Secrets secrets.Config
	// Discovery, unless nil, is the system for service discovery in which the agent registers tasks.
	Discovery discovery.Driver
	// DiscoveryOwner is the owner of the driver: letters and digits. The next agent with the same data has the same.
	DiscoveryOwner string
	// Checks replaces how the agent checks ports and programs.
	Checks task.CheckConfig
	// Clock replaces the machine's clock and random numbers.
	Clock ClockConfig
	// Without disables clauses of the protocol, in tests only.
	Without clause.Set
}

// ClockConfig replaces the machine's clock and random numbers.
type ClockConfig struct {
	// Boot is the boot-time clock (P9.1): never 0, never going back while the machine runs. Default: the machine's.
	Boot func() time.Duration
	// Random returns numbers in [0, 1) for jitter. Default: a random generator.
	Random func() float64
}

func (c *Config) setDefaults() {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock.Boot == nil {
		c.Clock.Boot = boottime.Now
	}
	if c.Clock.Random == nil {
		c.Clock.Random = rand.Float64
	}
	c.Machine.SetDefaults()
	c.Measure.SetDefaults(c.Volatile)
	c.Disks.SetDefaults()
}

// Validate returns an error for each missing or invalid setting.
func (c *Config) Validate() error {
	var errs []error
	if !cluster.ValidNodeName(c.Name) {
		errs = append(errs, fmt.Errorf("node name %q: want lower-case letters, digits, \"-\" and \".\"", c.Name))
	}
	if c.Source == nil {
		errs = append(errs, errors.New("an agent needs a server"))
	}
	if len(c.Executors) == 0 {
		errs = append(errs, errors.New("an agent needs an executor"))
	}
	if c.DataDir == "" {
		errs = append(errs, errors.New("an agent needs a data directory"))
	}
	return errors.Join(errs...)
}

package task

import (
	"context"

	"github.com/berthd/berth/internal/agent/artifact"
	"github.com/berthd/berth/internal/agent/machine"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/agent/pins"
	"github.com/berthd/berth/internal/agent/ports"
	"github.com/berthd/berth/internal/agent/registrar"
	"github.com/berthd/berth/internal/agent/reports"
	"github.com/berthd/berth/internal/agent/secrets"
	"github.com/berthd/berth/internal/agent/services"
	"github.com/berthd/berth/internal/agent/state"
	"github.com/berthd/berth/internal/agent/volumes"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/telemetry"
)

// CheckConfig replaces how attempts check ports and programs.
type CheckConfig struct {
	// PortFree returns nil if a task could use the port now. Otherwise the error is a sentence that says what uses it.
	// Default: ports.Free, which tries to use it and knows the tasks of the node.
	PortFree func(ctx context.Context, port int) error
	// Probe, unless nil, replaces the network in http and tcp checks.
	Probe func(ctx context.Context, c *cluster.Check, ports map[string]int) error
}

// WithDefaults returns the configuration with the functions that are missing. Tasks returns the ids of the node's tasks
// by the pids of their containers.
func (c CheckConfig) WithDefaults(tasks func() map[int]string) CheckConfig {
	if c.PortFree == nil {
		c.PortFree = func(ctx context.Context, port int) error { return ports.Free(ctx, port, tasks) }
	}
	return c
}

// Parts are the parts of the agent that attempts use. They do not change while attempts run.
type Parts struct {
	*node.Node

	Store     *state.Store
	Reports   *reports.Reports
	Facts     func() cluster.Facts
	Executors *machine.Executors
	Volumes   *volumes.Store
	Networks  *machine.TaskNetworks
	Pins      *pins.Pins
	Specs     *Specs
	Artifacts *artifact.Store
	Secrets   *secrets.Provider
	Services  *services.Provider
	Registrar *registrar.Registrar // nil registers nothing
	Tracer    *telemetry.Tracer    // nil records nothing
	Checks    CheckConfig
	// TTLWindow returns when updates of ttl checks could have arrived.
	TTLWindow func() lifecycle.TTLWindow
	// Forget drops an attempt without remains, unless an event waits in its inbox.
	Forget func(t *Task) bool
}

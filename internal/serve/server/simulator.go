package server

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/planning"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/whatif"
)

// simulateMost is how many attempts a domain may have to be simulated by a server that serves it: what a simulation
// needs grows with them.
const maxSimulatedAttempts = 500_000

// simulator works out what would become of the domain, on a branch of a server's tables and beside all that it serves.
type simulator struct {
	tables *store.Tables
	plane  *controlplane.Plane
}

// Check is part of apiserver.Simulator.
func (s *simulator) Check(ask api.SimulateRequest) cluster.Faults { return whatif.Check(ask) }

// Simulate is part of apiserver.Simulator.
func (s *simulator) Simulate(ctx context.Context, ask api.SimulateRequest) (*api.Simulation, error) {
	snap := s.tables.Snapshot()
	if n := snap.AttemptCount(); n > maxSimulatedAttempts {
		return nil, fmt.Errorf("%w: the store holds %d attempts, and a server simulates up to %d; save a "+
			"snapshot and simulate it with berth simulate --snapshot",
			planning.ErrSimulation, n, maxSimulatedAttempts)
	}
	return whatif.Aside(func() (*api.Simulation, error) {
		return whatif.Run(ctx, whatif.Config{
			Branch: store.NewBranch(snap, s.tables.Prefix(), slog.New(slog.DiscardHandler)), Now: time.Now(),
			DeviceValueModel: s.plane.DeviceValueModel(),
		}, ask)
	})
}

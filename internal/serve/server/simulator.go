package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/planning"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/serve/domains"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/whatif"
)

// maxSimulatedAttempts bounds the attempts of a domain that a serving server simulates. The memory of a simulation
// grows with them.
const maxSimulatedAttempts = 500_000

// simulator predicts the effect of changes on a branch of the server's tables.
type simulator struct {
	tables *store.Tables
	planes *domains.Planes
}

// Check implements apiserver.Simulator.
func (s *simulator) Check(ask api.SimulateRequest) cluster.Faults { return whatif.Check(ask) }

// Simulate implements apiserver.Simulator.
func (s *simulator) Simulate(ctx context.Context, ask api.SimulateRequest) (*api.Simulation, error) {
	snap := s.tables.Snapshot()
	if n := snap.AttemptCount(); n > maxSimulatedAttempts {
		return nil, fmt.Errorf("%w: the store has %d attempts, but a server simulates up to %d; save a snapshot and "+
			"simulate it with berth simulate --snapshot",
			planning.ErrSimulation, n, maxSimulatedAttempts)
	}
	c := whatif.Config{
		Branch: store.NewBranch(snap, s.tables.Prefix(), slog.New(slog.DiscardHandler)), Now: time.Now(),
	}
	if p := s.planes.Of(cmp.Or(ask.Domain, cluster.DefaultDomain)); p != nil {
		c.DeviceValueModel = p.DeviceValueModel()
	}
	return whatif.Aside(func() (*api.Simulation, error) { return whatif.Run(ctx, c, ask) })
}

package whatif

import (
	"context"
	"net/http"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Direct is the way to an API server in the same process.
func Direct(server http.Handler) http.RoundTripper { return direct{server} }

// Ask asks an API server for a change that is no change of machines.
func Ask(ctx context.Context, to *client.Client, c *api.SimulateChange) error { return ask(ctx, to, c) }

// Predict is Run, with the records as they would be.
func Predict(ctx context.Context, c Config, changes ...api.SimulateChange) (*api.Simulation, *store.Snapshot, error) {
	sim, err := Run(ctx, c, api.SimulateRequest{Changes: changes})
	return sim, c.Branch.Tables().Snapshot(), err
}

// Rolling reports whether a rollout goes on.
func Rolling(snap *store.Snapshot) bool { return rolling(snap, cluster.DefaultDomain) }

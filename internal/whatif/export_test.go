package whatif

import (
	"context"
	"net/http"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Direct connects to an API server in the same process.
func Direct(server http.Handler) http.RoundTripper { return direct{server} }

// Ask requests a change from an API server, except for added and removed nodes.
func Ask(ctx context.Context, to *client.Client, c *api.SimulateChange) error {
	return requestChange(ctx, to, c)
}

// Predict is Run, and also returns the resulting records.
func Predict(ctx context.Context, c Config, changes ...api.SimulateChange) (*api.Simulation, *store.Snapshot, error) {
	sim, err := Run(ctx, c, api.SimulateRequest{Changes: changes})
	return sim, c.Branch.Tables().Snapshot(), err
}

// Rolling reports whether a rollout is in progress.
func Rolling(snap *store.Snapshot) bool { return rolloutInProgress(snap, cluster.DefaultDomain) }

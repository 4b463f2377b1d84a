package client

import (
	"context"

	"github.com/berthd/berth/api"
)

// Simulate returns what would become of the domain if the changes were made, one after the other. It changes nothing. A
// server makes one simulation at a time: to others it answers with the status 429.
func (c *Client) Simulate(ctx context.Context, req api.SimulateRequest) (v api.Simulation, err error) {
	_, err = c.call(ctx, post(req, "simulate").once(), &v)
	return v, err
}

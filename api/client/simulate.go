package client

import (
	"context"

	"github.com/berthd/berth/api"
)

// Simulate returns the effect of the changes on the domain, one after the other. It changes nothing. A server runs one
// simulation at a time and answers others with 429.
func (c *Client) Simulate(ctx context.Context, req api.SimulateRequest) (v api.Simulation, err error) {
	_, err = c.call(ctx, post(req, "simulate").once(), &v)
	return v, err
}

package client

import (
	"context"

	"github.com/berthd/berth/api"
)

// Addresses lists where the healthy tasks of a service are reached. With ListOptions.Index and Wait it answers once
// that has changed.
func (c *Client) Addresses(ctx context.Context, inCluster, service string, o ListOptions) (api.Page[api.Address],
	error,
) {
	return list[api.Address](ctx, c, get("clusters", inCluster, "services", service, "addresses"), o)
}

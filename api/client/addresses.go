package client

import (
	"context"

	"github.com/berthd/berth/api"
)

// Addresses lists the addresses of the healthy tasks of a service. With ListOptions.Index and Wait it answers once the
// list has changed.
func (c *Client) Addresses(ctx context.Context, inCluster, service string, o ListOptions) (api.Page[api.Address],
	error,
) {
	return list[api.Address](ctx, c, get("clusters", inCluster, "services", service, "addresses"), o)
}

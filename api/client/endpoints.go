package client

import (
	"context"
	"net/http"

	"github.com/berthd/berth/api"
)

// Endpoints lists the endpoints of a cluster, or of all clusters if it is "".
func (c *Client) Endpoints(ctx context.Context, in string, o ListOptions) (api.Page[api.EndpointView], error) {
	return list[api.EndpointView](ctx, c, get(within(in, "endpoints")...), o)
}

// Endpoint returns an endpoint with its status.
func (c *Client) Endpoint(ctx context.Context, in, name string) (v api.EndpointView, err error) {
	_, err = c.call(ctx, get("clusters", in, "endpoints", name), &v)
	return v, err
}

// PutEndpoint writes an endpoint and returns its revision.
func (c *Client) PutEndpoint(ctx context.Context, v api.Endpoint, cond Condition) (uint64, error) {
	v.Cluster = orDefault(v.Cluster)
	return c.put(ctx, v, cond, "clusters", v.Cluster, "endpoints", v.Name)
}

// DeleteEndpoint removes an endpoint. The service stays as it is.
func (c *Client) DeleteEndpoint(ctx context.Context, in, name string, cond Condition) error {
	return c.act(ctx, http.MethodDelete, nil, cond, "clusters", in, "endpoints", name)
}

// EndpointAddresses lists the addresses of an endpoint. With ListOptions.Index and Wait it answers once the list has
// changed.
func (c *Client) EndpointAddresses(ctx context.Context, in, name string, o ListOptions) (
	api.Page[api.EndpointAddress], error,
) {
	return list[api.EndpointAddress](ctx, c, get("clusters", in, "endpoints", name, "addresses"), o)
}

// EndpointAddressChanges yields the index of the addresses of an endpoint: first the present one, then after each
// change. The iteration ends as Changes does.
func (c *Client) EndpointAddressChanges(ctx context.Context, in, name string) Changes {
	return c.changes(ctx, get("clusters", in, "endpoints", name, "addresses"))
}

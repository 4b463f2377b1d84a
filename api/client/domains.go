package client

import (
	"context"
	"net/http"

	"github.com/berthd/berth/api"
)

// Domains lists the domains by name.
func (c *Client) Domains(ctx context.Context, o ListOptions) (api.Page[api.DomainView], error) {
	return list[api.DomainView](ctx, c, get("domains"), o)
}

// Domain returns a domain.
func (c *Client) Domain(ctx context.Context, name string) (v api.DomainView, err error) {
	_, err = c.call(ctx, get("domains", name), &v)
	return v, err
}

// PutDomain makes or changes a domain and returns the revision of its record.
func (c *Client) PutDomain(ctx context.Context, v api.Domain, cond Condition) (uint64, error) {
	return c.put(ctx, v, cond, "domains", v.Name)
}

// DeleteDomain deletes a domain without clusters and nodes.
func (c *Client) DeleteDomain(ctx context.Context, name string, cond Condition) error {
	return c.act(ctx, http.MethodDelete, nil, cond, "domains", name)
}

package client

import (
	"context"
	"net/http"

	"github.com/berthd/berth/api"
)

// Pools lists the pools of nodes by name.
func (c *Client) Pools(ctx context.Context, o ListOptions) (api.Page[api.PoolView], error) {
	return list[api.PoolView](ctx, c, get("pools"), o)
}

// Pool returns a pool of nodes.
func (c *Client) Pool(ctx context.Context, name string) (v api.PoolView, err error) {
	_, err = c.call(ctx, get("pools", name), &v)
	return v, err
}

// PutPool writes the settings of a pool and returns their revision.
func (c *Client) PutPool(ctx context.Context, v api.Pool, cond Condition) (uint64, error) {
	return c.put(ctx, v, cond, "pools", v.Name)
}

// DeletePool deletes the settings of a pool without nodes.
func (c *Client) DeletePool(ctx context.Context, name string, cond Condition) error {
	return c.act(ctx, http.MethodDelete, nil, cond, "pools", name)
}

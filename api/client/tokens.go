package client

import (
	"context"
	"net/http"

	"github.com/berthd/berth/api"
)

// Tokens lists the tokens, without their secrets.
func (c *Client) Tokens(ctx context.Context, o ListOptions) (api.Page[api.TokenView], error) {
	return list[api.TokenView](ctx, c, get("tokens"), o)
}

// CreateToken creates a token. Only this answer contains its secret.
func (c *Client) CreateToken(ctx context.Context, r api.TokenRequest) (v api.TokenReply, err error) {
	_, err = c.call(ctx, post(r, "tokens"), &v)
	return v, err
}

// RevokeToken revokes a token immediately.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	_, err := c.call(ctx, request{method: http.MethodDelete, path: []string{"tokens", id}}, nil)
	return err
}

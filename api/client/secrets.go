package client

import (
	"context"
	"net/http"

	"github.com/berthd/berth/api"
)

// Secrets lists the secrets of a cluster, or of all clusters if it is "", without their values.
func (c *Client) Secrets(ctx context.Context, inCluster string, o ListOptions) (api.Page[api.SecretView], error) {
	if inCluster == "" {
		return list[api.SecretView](ctx, c, get("secrets"), o)
	}
	return list[api.SecretView](ctx, c, get("clusters", inCluster, "secrets"), o)
}

// Secret returns a secret without its value.
func (c *Client) Secret(ctx context.Context, inCluster, name string) (v api.SecretView, err error) {
	_, err = c.call(ctx, get("clusters", inCluster, "secrets", name), &v)
	return v, err
}

// PutSecret creates a secret or replaces its value.
func (c *Client) PutSecret(ctx context.Context, inCluster, name string, s api.SecretWrite,
	cond Condition,
) (v api.SecretView, err error) {
	_, err = c.call(ctx, request{
		method: http.MethodPut, path: []string{"clusters", inCluster, "secrets", name},
		body: s,
	}.given(cond), &v)
	return v, err
}

// DeleteSecret deletes a secret. A secret in use is deleted only with force.
func (c *Client) DeleteSecret(ctx context.Context, inCluster, name string, force bool, cond Condition) error {
	r := request{method: http.MethodDelete, path: []string{"clusters", inCluster, "secrets", name}}
	if force {
		r.query = map[string][]string{"force": {"true"}}
	}
	_, err := c.call(ctx, r.given(cond), nil)
	return err
}

// RekeySecrets creates another master key, or returns the one whose rollout is in progress.
func (c *Client) RekeySecrets(ctx context.Context) (v api.MasterKeyView, err error) {
	_, err = c.call(ctx, request{method: http.MethodPost, path: []string{"secrets", "rekey"}}, &v)
	return v, err
}

// MasterKeys lists the master keys of the secrets, the newest first.
func (c *Client) MasterKeys(ctx context.Context) (all []api.MasterKeyView, err error) {
	_, err = c.call(ctx, get("secrets", "master-keys"), &all)
	return all, err
}

// DropMasterKey makes all servers remove an unused master key from their files.
func (c *Client) DropMasterKey(ctx context.Context, id string) error {
	_, err := c.call(ctx, request{method: http.MethodDelete, path: []string{"secrets", "master-keys", id}}, nil)
	return err
}

// RotateSecretsKey creates another data key and seals all secrets with it.
func (c *Client) RotateSecretsKey(ctx context.Context) (v api.SecretsKeyView, err error) {
	_, err = c.call(ctx, request{method: http.MethodPost, path: []string{"secrets", "rotate-key"}}, &v)
	return v, err
}

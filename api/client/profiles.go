package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/berthd/berth/api"
)

// Profiles lists all versions of the profiles of machines.
func (c *Client) Profiles(ctx context.Context, o ListOptions) (api.Page[api.ProfileView], error) {
	return list[api.ProfileView](ctx, c, get("profiles"), o)
}

// MachineProfile returns a version of a profile, or the newest one if the reference has no version.
func (c *Client) MachineProfile(ctx context.Context, ref api.Ref) (v api.ProfileView, err error) {
	path := []string{"profiles", ref.Name}
	if ref.Version > 0 {
		path = append(path, strconv.Itoa(ref.Version))
	}
	_, err = c.call(ctx, get(path...), &v)
	return v, err
}

// DeleteProfile deletes a version of a profile that no node has.
func (c *Client) DeleteProfile(ctx context.Context, ref api.Ref, cond Condition) error {
	return c.act(ctx, http.MethodDelete, nil, cond, "profiles", ref.Name, strconv.Itoa(ref.Version))
}

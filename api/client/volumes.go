package client

import (
	"context"

	"github.com/berthd/berth/api"
)

// Volumes lists the volumes of a node, or of all nodes if it is "".
func (c *Client) Volumes(ctx context.Context, node string) (reply api.VolumesReply, err error) {
	_, err = c.call(ctx, get("volumes").with(onNode(node)), &reply)
	return reply, err
}

// RemoveVolume has a node remove a volume that no task uses, with its data, and returns what it was.
func (c *Client) RemoveVolume(ctx context.Context, r api.VolumeRemove) (v api.VolumeView, err error) {
	_, err = c.call(ctx, post(r, "volumes", "remove"), &v)
	return v, err
}

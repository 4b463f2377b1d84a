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

// RemoveVolume makes a node remove an unused volume with its data, and returns the volume.
func (c *Client) RemoveVolume(ctx context.Context, r api.VolumeRemove) (v api.VolumeView, err error) {
	_, err = c.call(ctx, post(r, "volumes", "remove"), &v)
	return v, err
}

package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/berthd/berth/api"
)

// Images lists the images that a node has, or all nodes if it is "".
func (c *Client) Images(ctx context.Context, node string) (reply api.ImagesReply, err error) {
	_, err = c.call(ctx, get("images").with(onNode(node)), &reply)
	return reply, err
}

// LoadImages sends an archive of images, as `docker save` and OCI tools write it, to a node, or
// to all nodes if it is "". What a single node says against it is in the reply.
func (c *Client) LoadImages(ctx context.Context, node string, archive io.Reader) (reply api.ImagesReply, err error) {
	r := request{method: http.MethodPost, path: []string{"images"}, body: archive}.with(onNode(node))
	_, err = c.call(ctx, r, &reply)
	return reply, err
}

// PullImages has nodes pull images and returns what they have then. What a single node says against it is in the reply.
func (c *Client) PullImages(ctx context.Context, p api.ImagePull) (reply api.ImagesReply, err error) {
	_, err = c.call(ctx, post(p, "images", "pull"), &reply)
	return reply, err
}

// PruneImages has nodes remove images that nothing uses, or say which they would. What a single node says against it is in the reply.
func (c *Client) PruneImages(ctx context.Context, p api.ImagePrune) (reply api.ImagePruneReply, err error) {
	_, err = c.call(ctx, post(p, "images", "prune"), &reply)
	return reply, err
}

func onNode(node string) url.Values {
	if node == "" {
		return nil
	}
	return url.Values{"node": {node}}
}

package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/berthd/berth/api"
)

// Images lists the images of a node, or of all nodes if it is "".
func (c *Client) Images(ctx context.Context, node string) (reply api.ImagesReply, err error) {
	_, err = c.call(ctx, get("images").with(onNode(node)), &reply)
	return reply, err
}

// LoadImages sends an archive of images, in the format of `docker save` or OCI, to a node, or to all nodes if it is "".
// The reply has the faults of single nodes.
func (c *Client) LoadImages(ctx context.Context, node string, archive io.Reader) (reply api.ImagesReply, err error) {
	r := request{method: http.MethodPost, path: []string{"images"}, body: archive}.with(onNode(node))
	_, err = c.call(ctx, r, &reply)
	return reply, err
}

// PullImages makes nodes pull images and returns the images that they have afterwards. The reply has the faults of
// single nodes.
func (c *Client) PullImages(ctx context.Context, p api.ImagePull) (reply api.ImagesReply, err error) {
	_, err = c.call(ctx, post(p, "images", "pull"), &reply)
	return reply, err
}

// FollowPull is PullImages with progress: it calls progress with each message, from this goroutine. When ctx ends,
// nodes stop the pulls that no task needs.
func (c *Client) FollowPull(ctx context.Context, p api.ImagePull, progress func(api.ImagePullNews)) (
	reply api.ImagesReply, err error,
) {
	r := post(p, "images", "pull")
	r.header = http.Header{"Accept": {"application/x-ndjson"}}
	res, err := c.send(ctx, r)
	if err != nil {
		return reply, err
	}
	defer res.Body.Close()
	for in := json.NewDecoder(res.Body); ; {
		var n api.ImagePullNews
		switch err := in.Decode(&n); {
		case err == nil && n.Reply != nil:
			return *n.Reply, nil
		case err == nil:
			progress(n)
		case ctx.Err() != nil:
			return reply, ctx.Err()
		default:
			return reply, fmt.Errorf("read how the pull comes along: %w", err)
		}
	}
}

// PruneImages makes nodes remove unused images, or list them in a dry run. The reply has the faults of single nodes.
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

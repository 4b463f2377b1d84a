package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

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

// FollowPull is PullImages that tells how it comes along, unless the server is of a build before: told is called with
// each piece of news, from this goroutine. When ctx ends the nodes stop pulling, but for what a task wants as well.
func (c *Client) FollowPull(ctx context.Context, p api.ImagePull, told func(api.ImagePullNews)) (reply api.ImagesReply,
	err error,
) {
	r := post(p, "images", "pull")
	r.header = http.Header{"Accept": {"application/x-ndjson, application/json"}}
	res, err := c.send(ctx, r)
	if err != nil {
		return reply, err
	}
	defer res.Body.Close()
	in := json.NewDecoder(res.Body)
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "application/x-ndjson") {
		err = in.Decode(&reply)
	}
	for strings.HasPrefix(res.Header.Get("Content-Type"), "application/x-ndjson") && err == nil {
		var n api.ImagePullNews
		if err = in.Decode(&n); err != nil {
			break
		}
		if n.Reply != nil {
			return *n.Reply, nil
		}
		told(n)
	}
	if ctx.Err() != nil {
		return reply, ctx.Err()
	}
	if err != nil {
		err = fmt.Errorf("read how the pull comes along: %w", err)
	}
	return reply, err
}

// PruneImages has nodes remove images that nothing uses, or say which they would. What a single node says against it is
// in the reply.
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

package client

import (
	"context"
	"net/url"

	"github.com/berthd/berth/api"
)

// Queue returns what waits for placement, in its order. Unless in is empty, it has the entries of that cluster only;
// their positions count all clusters.
func (c *Client) Queue(ctx context.Context, in string) (q api.Queue, err error) {
	r := get("queue")
	if in != "" {
		r = r.with(url.Values{"cluster": {in}})
	}
	_, err = c.call(ctx, r, &q)
	return q, err
}

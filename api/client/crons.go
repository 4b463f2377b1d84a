package client

import (
	"context"
	"net/http"

	"github.com/berthd/berth/api"
)

// Crons lists the crons of a cluster, or of all if it is "".
func (c *Client) Crons(ctx context.Context, in string, o ListOptions) (api.Page[api.CronView], error) {
	return list[api.CronView](ctx, c, get(within(in, "crons")...), o)
}

// Cron returns a cron with its status.
func (c *Client) Cron(ctx context.Context, in, name string) (v api.CronView, err error) {
	_, err = c.call(ctx, get("clusters", in, "crons", name), &v)
	return v, err
}

// PutCron writes a cron and returns its revision.
func (c *Client) PutCron(ctx context.Context, v api.Cron, cond Condition) (uint64, error) {
	v.Cluster = orDefault(v.Cluster)
	return c.put(ctx, v, cond, "clusters", v.Cluster, "crons", v.Name)
}

// DeleteCron removes a cron; its jobs stay, and run to their end.
func (c *Client) DeleteCron(ctx context.Context, in, name string, cond Condition) error {
	return c.act(ctx, http.MethodDelete, nil, cond, "clusters", in, "crons", name)
}

// RunCron makes a job of a cron at once, whatever its schedule says, and returns it.
func (c *Client) RunCron(ctx context.Context, in, name string) (v api.JobView, err error) {
	path := []string{"clusters", in, "crons", name, "run"}
	_, err = c.call(ctx, request{method: http.MethodPost, path: path}, &v)
	return v, err
}

// SuspendCron has a cron make no jobs.
func (c *Client) SuspendCron(ctx context.Context, in, name string, cond Condition) error {
	return c.act(ctx, http.MethodPost, nil, cond, "clusters", in, "crons", name, "suspend")
}

// ResumeCron has a suspended cron go on; what it makes of the moments that passed its policy for missed ones says.
func (c *Client) ResumeCron(ctx context.Context, in, name string, cond Condition) error {
	return c.act(ctx, http.MethodPost, nil, cond, "clusters", in, "crons", name, "resume")
}

package client

import (
	"context"
	"net/http"

	"github.com/berthd/berth/api"
)

// Crons lists the crons of a cluster, or of all clusters if it is "".
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

// DeleteCron removes a cron. Its jobs run to their end.
func (c *Client) DeleteCron(ctx context.Context, in, name string, cond Condition) error {
	return c.act(ctx, http.MethodDelete, nil, cond, "clusters", in, "crons", name)
}

// RunCron makes a job of a cron immediately, regardless of its schedule, and returns it.
func (c *Client) RunCron(ctx context.Context, in, name string) (v api.JobView, err error) {
	path := []string{"clusters", in, "crons", name, "run"}
	_, err = c.call(ctx, request{method: http.MethodPost, path: path}, &v)
	return v, err
}

// SuspendCron stops a cron from making jobs.
func (c *Client) SuspendCron(ctx context.Context, in, name string, cond Condition) error {
	return c.act(ctx, http.MethodPost, nil, cond, "clusters", in, "crons", name, "suspend")
}

// ResumeCron resumes a suspended cron. Its policy for missed moments decides about the moments in between.
func (c *Client) ResumeCron(ctx context.Context, in, name string, cond Condition) error {
	return c.act(ctx, http.MethodPost, nil, cond, "clusters", in, "crons", name, "resume")
}

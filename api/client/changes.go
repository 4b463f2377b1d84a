package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/berthd/berth/internal/pause"
)

// Changes streams the index of a list: once at the beginning, and again after each change. Several changes in quick
// succession come as one. A broken stream is resumed until ctx ends, so a caller may use it as the signal to read an
// object again. A refusal by the server ends the sequence with the error.
type Changes = iter.Seq2[uint64, error]

// ServiceChanges follows the services with a name ("" is all names) in a cluster ("" is all clusters).
func (c *Client) ServiceChanges(ctx context.Context, in, name string) Changes {
	return c.changes(ctx, get(within(in, "services")...).with(named(name)))
}

// JobChanges follows the jobs with a name ("" is all names) in a cluster ("" is all clusters).
func (c *Client) JobChanges(ctx context.Context, in, name string) Changes {
	return c.changes(ctx, get(within(in, "jobs")...).with(named(name)))
}

// CronChanges follows the crons with a name ("" is all names) in a cluster ("" is all clusters).
func (c *Client) CronChanges(ctx context.Context, in, name string) Changes {
	return c.changes(ctx, get(within(in, "crons")...).with(named(name)))
}

// EndpointChanges follows the endpoints with a name ("" is all names) in a cluster ("" is all clusters).
func (c *Client) EndpointChanges(ctx context.Context, in, name string) Changes {
	return c.changes(ctx, get(within(in, "endpoints")...).with(named(name)))
}

// NodeChanges follows the node with a name ("" is all nodes).
func (c *Client) NodeChanges(ctx context.Context, name string) Changes {
	return c.changes(ctx, get("nodes").with(named(name)))
}

// TaskChanges follows the tasks that match a filter.
func (c *Client) TaskChanges(ctx context.Context, f TaskFilter) Changes {
	return c.changes(ctx, get("tasks").with(f.query()))
}

// RebalancingChanges follows the rebalancings.
func (c *Client) RebalancingChanges(ctx context.Context) Changes {
	return c.changes(ctx, get("rebalancings"))
}

// named returns the query for elements with a name; "" is any name.
func named(name string) url.Values {
	if name == "" {
		return nil
	}
	return url.Values{"name": {name}}
}

// changes follows a list, see Changes.
func (c *Client) changes(ctx context.Context, r request) Changes {
	return func(yield func(uint64, error) bool) {
		last := ""
		err := reconnect(ctx, func(backoff *pause.Backoff) (bool, error) {
			err := c.listStream(ctx, r, last, func(id string) bool {
				index, err := strconv.ParseUint(id, 10, 64)
				last = id
				backoff.Reset()
				return err != nil || yield(index, nil)
			})
			return err == nil, err
		}, func(err error) (bool, error) {
			return isRefused(err) && StatusOf(err) != http.StatusTooManyRequests, err
		})
		if err != nil {
			yield(0, err)
		}
	}
}

// listStream reads the marks of one connection; nil means that yield has stopped the iteration.
func (c *Client) listStream(ctx context.Context, r request, last string, yield func(id string) bool) error {
	r.header = http.Header{"Accept": {"text/event-stream"}}
	if last != "" {
		r.header.Set("Last-Event-ID", last)
	}
	res, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	for msg, err := range messages(res.Body) {
		if err != nil {
			return err
		}
		if msg.event == "synced" && !yield(msg.id) {
			return nil
		}
	}
	return errEnded
}

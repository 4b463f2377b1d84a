package client

import (
	"context"
	"net/url"
	"strconv"

	"github.com/berthd/berth/api"
)

// QueueFilter selects the entries of a queue. Positions count all clusters, services and jobs.
type QueueFilter struct {
	// Cluster, unless empty, selects the entries of this cluster. Service and Job select those of the services and jobs
	// of this name.
	Cluster, Service, Job string
	// Limit is the maximum number of entries, from 1 to api.MaxQueueLimit; 0 means api.DefaultQueueLimit.
	Limit int
}

// Queue returns what waits for placement, in its order.
func (c *Client) Queue(ctx context.Context, filter QueueFilter) (q api.Queue, err error) {
	query := url.Values{}
	for name, value := range map[string]string{
		"cluster": filter.Cluster, "service": filter.Service, "job": filter.Job,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if filter.Limit != 0 {
		query.Set("limit", strconv.Itoa(filter.Limit))
	}
	_, err = c.call(ctx, get("queue").with(query), &q)
	return q, err
}

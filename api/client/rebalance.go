package client

import (
	"context"
	"strconv"
	"time"

	"github.com/berthd/berth/api"
)

// RebalanceOptions say what a rebalancing looks at. The zero value is the server's defaults.
type RebalanceOptions struct {
	// Cluster, unless empty, is the one whose tasks are moved.
	Cluster string
	// Max bounds the moves. nil is the server's default, 0 no bound.
	Max *int
	// MinGain is the least that a move has to gain, in points. 0 is the server's default.
	MinGain int
	// Settle is how long a task must have run to be moved. nil is the server's default.
	Settle *time.Duration
	// KeepViolations leaves tasks in place of which nothing is wrong but their constraints.
	KeepViolations bool
}

// Rebalance returns the moves that would let tasks stand better. It changes nothing.
func (c *Client) Rebalance(ctx context.Context, o RebalanceOptions) (v api.Rebalance, err error) {
	r := get("rebalance")
	add := func(name, value string) { r.query.Set(name, value) }
	r.query = map[string][]string{}
	if o.Cluster != "" {
		add("cluster", o.Cluster)
	}
	if o.Max != nil {
		add("max", strconv.Itoa(*o.Max))
	}
	if o.MinGain > 0 {
		add("min_gain", strconv.Itoa(o.MinGain))
	}
	if o.Settle != nil {
		add("settle", o.Settle.String())
	}
	if o.KeepViolations {
		add("keep_violations", "true")
	}
	_, err = c.call(ctx, r, &v)
	return v, err
}

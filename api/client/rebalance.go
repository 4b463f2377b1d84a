package client

import (
	"context"
	"strconv"
	"time"

	"github.com/berthd/berth/api"
)

// RebalanceOptions limit a rebalancing. The zero value selects the server's defaults.
type RebalanceOptions struct {
	// Cluster, unless empty, limits the moves to tasks of this cluster.
	Cluster string
	// Max is the maximum number of moves; nil is the server's default, 0 is unlimited.
	Max *int
	// MinGain is the minimum gain of a move, in points. 0 is the server's default.
	MinGain int
	// Settle is the minimum run time of a movable task. nil is the server's default.
	Settle *time.Duration
	// KeepViolations does not move tasks for violated constraints alone.
	KeepViolations bool
}

// Rebalance returns the moves that would improve the placement. It changes nothing.
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

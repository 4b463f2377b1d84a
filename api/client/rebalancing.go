package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/berthd/berth/api"
)

// ApplyRebalance starts the moves of a list from Rebalance. It is refused with 409 during another rebalancing, and with
// 422 for tasks that have changed since the list was made.
func (c *Client) ApplyRebalance(ctx context.Context, r api.RebalanceRequest) (v api.RebalancingView, err error) {
	_, err = c.call(ctx, post(r, "rebalance"), &v)
	return v, err
}

// Rebalancing returns the progress of a rebalancing; 0 is the newest one.
func (c *Client) Rebalancing(ctx context.Context, id uint64) (v api.RebalancingView, err error) {
	_, err = c.call(ctx, get("rebalancings", rebalancingName(id)), &v)
	return v, err
}

// Rebalancings returns the present and recorded rebalancings, the oldest first.
func (c *Client) Rebalancings(ctx context.Context, o ListOptions) (api.Page[api.RebalancingBrief], error) {
	return list[api.RebalancingBrief](ctx, c, get("rebalancings"), o)
}

// CancelRebalancing ends a rebalancing, 0 for the newest: no further move begins. A repetition is no error. A
// rebalancing that has ended is refused with 409.
func (c *Client) CancelRebalancing(ctx context.Context, id uint64, cond Condition) (v api.RebalancingView, err error) {
	path := []string{"rebalancings", rebalancingName(id), "cancel"}
	_, err = c.call(ctx, request{method: http.MethodPost, path: path}.given(cond), &v)
	return v, err
}

// UndoRebalancing reverses the moves of a rebalancing; 0 is the newest one that was not reversed. It is refused with
// 409 if there is nothing to reverse.
func (c *Client) UndoRebalancing(ctx context.Context, id uint64, u api.UndoRebalanceRequest) (v api.RebalancingView,
	err error,
) {
	_, err = c.call(ctx, post(u, "rebalancings", rebalancingName(id), "undo"), &v)
	return v, err
}

func rebalancingName(id uint64) string {
	if id == 0 {
		return "last"
	}
	return strconv.FormatUint(id, 10)
}

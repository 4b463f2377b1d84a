package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/berthd/berth/api"
)

// ApplyRebalance has moves carried out, as Rebalance lists them. While others are carried out it is refused with 409,
// and for tasks that have gone on since the list was made with 422.
func (c *Client) ApplyRebalance(ctx context.Context, r api.RebalanceRequest) (v api.RebalancingView, err error) {
	_, err = c.call(ctx, post(r, "rebalance"), &v)
	return v, err
}

// Rebalancing returns how far a rebalancing got; 0 is the newest one.
func (c *Client) Rebalancing(ctx context.Context, id uint64) (v api.RebalancingView, err error) {
	_, err = c.call(ctx, get("rebalancings", rebalancingName(id)), &v)
	return v, err
}

// Rebalancings returns those that run or are remembered, the oldest first.
func (c *Client) Rebalancings(ctx context.Context, o ListOptions) (api.Page[api.RebalancingBrief], error) {
	return list[api.RebalancingBrief](ctx, c, get("rebalancings"), o)
}

// CancelRebalancing ends a rebalancing, 0 being the newest one: no further move begins. One that was cancelled already
// is no error, one that has ended is refused with 409.
func (c *Client) CancelRebalancing(ctx context.Context, id uint64, cond Condition) (v api.RebalancingView, err error) {
	path := []string{"rebalancings", rebalancingName(id), "cancel"}
	_, err = c.call(ctx, request{method: http.MethodPost, path: path}.given(cond), &v)
	return v, err
}

// UndoRebalancing takes back what a rebalancing has moved; 0 is the newest one that was not taken back. Where there is
// nothing to take back it is refused with 409.
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

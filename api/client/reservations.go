package client

import (
	"context"
	"net/http"

	"github.com/berthd/berth/api"
)

// Reservations lists what keeps nodes for somebody, by name.
func (c *Client) Reservations(ctx context.Context, o ListOptions) (api.Page[api.ReservationView], error) {
	return list[api.ReservationView](ctx, c, get("reservations"), o)
}

// Reservation returns one.
func (c *Client) Reservation(ctx context.Context, name string) (v api.ReservationView, err error) {
	_, err = c.call(ctx, get("reservations", name), &v)
	return v, err
}

// PutReservation writes one, and returns it with the nodes that were chosen.
func (c *Client) PutReservation(ctx context.Context, r api.Reservation, cond Condition) (v api.ReservationView,
	err error,
) {
	_, err = c.call(ctx, request{method: http.MethodPut, path: []string{"reservations", r.Name}, body: r}.given(cond),
		&v)
	return v, err
}

// DeleteReservation gives its nodes to everybody at once. Tasks that run there stay.
func (c *Client) DeleteReservation(ctx context.Context, name string, cond Condition) error {
	return c.act(ctx, http.MethodDelete, nil, cond, "reservations", name)
}

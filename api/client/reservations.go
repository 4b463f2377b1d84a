package client

import (
	"context"
	"net/http"

	"github.com/berthd/berth/api"
)

// Reservations lists the reservations by name.
func (c *Client) Reservations(ctx context.Context, o ListOptions) (api.Page[api.ReservationView], error) {
	return list[api.ReservationView](ctx, c, get("reservations"), o)
}

// Reservation returns a reservation.
func (c *Client) Reservation(ctx context.Context, name string) (v api.ReservationView, err error) {
	_, err = c.call(ctx, get("reservations", name), &v)
	return v, err
}

// PutReservation writes a reservation and returns it with the chosen nodes.
func (c *Client) PutReservation(ctx context.Context, r api.Reservation, cond Condition) (v api.ReservationView,
	err error,
) {
	_, err = c.call(ctx, request{method: http.MethodPut, path: []string{"reservations", r.Name}, body: r}.given(cond),
		&v)
	return v, err
}

// DeleteReservation releases the nodes of a reservation immediately. Its running tasks stay.
func (c *Client) DeleteReservation(ctx context.Context, name string, cond Condition) error {
	return c.act(ctx, http.MethodDelete, nil, cond, "reservations", name)
}

package api

import "github.com/berthd/berth/internal/cluster"

// Reservation is what keeps nodes for somebody, as users write it.
type Reservation = cluster.Reservation

// ReservationView is a reservation with where it stands.
type ReservationView struct {
	Reservation
	// State is "planned", "active" or "over".
	State    string `json:"state"`
	Revision uint64 `json:"revision"`
}

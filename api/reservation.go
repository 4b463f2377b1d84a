package api

// ReservationView is a reservation with its state.
type ReservationView struct {
	Reservation
	// State is "planned", "active" or "over".
	State    string `json:"state"`
	Revision uint64 `json:"revision"`
}

package api

// ReservationView is a reservation with where it stands.
type ReservationView struct {
	Reservation
	// State is "planned", "active" or "over".
	State    string `json:"state"`
	Revision uint64 `json:"revision"`
}

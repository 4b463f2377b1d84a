package api

// ReservationView is a reservation with its state.
type ReservationView struct {
	Reservation
	State    ReservationState `json:"state"`
	Revision uint64           `json:"revision"`
}

// ReservationState is the state of a reservation.
type ReservationState string

// States of a reservation, in their order.
const (
	ReservationPlanned ReservationState = "planned" // its time has not begun
	ReservationActive  ReservationState = "active"
	ReservationOver    ReservationState = "over"
)

// Values returns every ReservationState, in the order of the constants.
func (ReservationState) Values() []ReservationState {
	return []ReservationState{ReservationPlanned, ReservationActive, ReservationOver}
}

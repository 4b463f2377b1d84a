package fleetview

import (
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// reservations holds the reservations of the domain that are not over. They follow from the records and the clock
// alone, so that the next leader sees the same.
type reservations struct {
	at map[string][]*cluster.Reservation // by node, in the order of their start
	// next is the next time at which a lead, a span or an end is reached. Zero for never.
	next time.Time
}

// learnReservations brings the reservations to the snapshot and the time. Nodes with changed reservations are set
// again, and their attempts are checked. If a point in time has passed, that holds for all nodes with reservations.
func (v *View) learnReservations(snap *store.Snapshot, c store.Changes, now time.Time) {
	r := &v.reservations
	passed := !r.next.IsZero() && !now.Before(r.next)
	if !c.Resync && !c.Reservations && !passed {
		return
	}
	was := r.at
	r.at, r.next = snap.Reserved(v.domain, now), time.Time{}
	for name, list := range r.at { // order-free: each node by itself, and the earliest of all
		for _, reservation := range list {
			if at := reservation.Next(now); r.next.IsZero() || at.Before(r.next) {
				r.next = at
			}
		}
		if passed || !slices.Equal(was[name], list) {
			v.reviewNode(snap, name)
		}
	}
	for name := range was { // order-free: each node by itself
		if _, still := r.at[name]; !still {
			v.reviewNode(snap, name)
		}
	}
}

// reviewNode sets a node whose reservations changed, and has its attempts checked.
func (v *View) reviewNode(snap *store.Snapshot, name string) {
	v.setNode(snap, name)
	v.Rechecks.nodes[name] = true
}

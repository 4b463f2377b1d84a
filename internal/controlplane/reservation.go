package controlplane

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

// learnReservations brings the reservations to the snapshot and the time. Nodes with changed reservations are set anew,
// and their attempts are checked. If a point in time has passed, that holds for all nodes with reservations.
func (l *loop) learnReservations(snap *store.Snapshot, c store.Changes) {
	r := &l.reservations
	passed := !r.next.IsZero() && !l.now.Before(r.next)
	if !c.Resync && !c.Reservations && !passed {
		return
	}
	was := r.at
	r.at, r.next = snap.Reserved(l.config.Domain, l.now), time.Time{}
	for name, list := range r.at { // order-free: each node by itself, and the earliest of all
		for _, v := range list {
			if at := v.Next(l.now); r.next.IsZero() || at.Before(r.next) {
				r.next = at
			}
		}
		if passed || !slices.Equal(was[name], list) {
			l.reviewNode(snap, name)
		}
	}
	for name := range was { // order-free: each node by itself
		if _, still := r.at[name]; !still {
			l.reviewNode(snap, name)
		}
	}
}

// reviewNode sets a node whose reservations changed, and has its attempts checked.
func (l *loop) reviewNode(snap *store.Snapshot, name string) {
	l.setNode(snap, name)
	l.violations.nodes[name] = true
}

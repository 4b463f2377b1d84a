package controlplane

import (
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// reservations are those of the domain that are not over. Nothing of them is written: what holds follows from the
// records and the clock, so that the next leader sees the same.
type reservations struct {
	at map[string][]*cluster.Reservation // by node, in the order of their begin
	// next is when time next makes a difference: when a lead, a span or an end is reached. Zero for never.
	next time.Time
}

// learnReservations brings them to the snapshot and the time. Nodes that they came to or left, and all of theirs when
// time made a difference, are set anew, and what runs there is looked at.
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

// reviewNode sets a node whose reservations changed, and has what runs there looked at.
func (l *loop) reviewNode(snap *store.Snapshot, name string) {
	l.setNode(snap, name)
	l.misfits.nodes[name] = true
}

// reserved says that an attempt is to leave its node for a reservation that has begun, evicts, and does not admit it;
// or nil.
func (f *fitter) reserved(o cluster.OwnerRef, t *reconciler.Standing, node string) *reconciler.Leave {
	for _, r := range f.loop.reservations.at[node] {
		if !r.Evict || !r.Active(f.loop.now) ||
			r.Admits(o.Cluster, f.loop.mannersOf(f.snap, o).labels, t.Placement.Reservation) {
			continue
		}
		return &reconciler.Leave{
			Reason: cluster.ReasonReserved, Since: r.From, Now: t.Job,
			Message: fmt.Sprintf("node %s is kept by the reservation %s until %s", node, r.Name,
				r.Until.UTC().Format(time.RFC3339)),
		}
	}
	return nil
}

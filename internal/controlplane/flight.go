package controlplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
	"github.com/berthd/berth/internal/store"
)

// flight is plan records on their way into the store and from there into the tables. The next decision is made
// meanwhile: what they place is charged to the fleet already (P3.2), and nothing is decided for their owners before the
// flight has landed.
type flight struct {
	owners map[cluster.OwnerRef]bool
	// nodes are those whose attempts were looked at meanwhile, for whether they may stay; all of them if all is true.
	// What lands is looked at anew.
	nodes map[string]bool
	all   bool
	done  chan struct{}
	// What came of it, to be read once done is closed: how many tasks were placed, the revision that holds them, and
	// what ended it early.
	placed   int
	revision uint64
	err      error
}

// flies reports whether the owner has placements on their way.
func (l *loop) flies(o cluster.OwnerRef) bool { return l.flight != nil && l.flight.owners[o] }

// landing is closed when the flight is over; nil without one.
func (l *loop) landing() <-chan struct{} {
	if l.flight == nil {
		return nil
	}
	return l.flight.done
}

// launch commits placements behind the loop's back. No other flight may be on its way.
func (l *loop) launch(ctx context.Context, snap *store.Snapshot, pending []cluster.Pending,
	placements []scheduler.Placement, began time.Time,
) {
	f := &flight{owners: map[cluster.OwnerRef]bool{}, nodes: map[string]bool{}, done: make(chan struct{})}
	ids := make([]string, len(placements))
	for i := range placements {
		pl, id := &placements[i], l.config.NewID()
		p := &pending[pl.Pending]
		ids[i], f.owners[p.Owner] = id, true
		key := store.AttemptKey{Task: pl.Task, Number: p.Attempt}
		l.fleet.Reserve(pl.Reservation(p, id))
		l.reserve[key], l.aloft[key] = hold{id, pl.Node}, true
	}
	proposals := l.proposals(pending, placements, ids)
	unplaced := l.unplaced
	for o := range f.owners { // order-free: each by itself
		l.mannersOf(snap, o) // as they are charged by
		l.dirty[o] = true    // what it waits for is found anew, before anything of it is placed again
		l.setPending(o, nil, nil)
	}
	l.unplaced = unplaced // the others found no place on an emptier fleet
	l.flight = f
	go func() {
		defer close(f.done)
		f.err = l.append(ctx, f, snap, proposals, began)
		if f.err == nil {
			_, f.err = l.config.await(ctx, f.revision)
		}
	}()
}

// append writes the plan records, one after the other. Beside it the loop leaves the log alone.
func (l *loop) append(ctx context.Context, f *flight, snap *store.Snapshot, proposals []store.Proposal,
	began time.Time,
) error {
	for _, p := range proposals {
		for i := range p.Owners {
			p.Owners[i].Meter = meterOf(snap, p.Owners[i].Owner)
		}
		committed := l.trace(snap, &p, began)
		revision, err := l.plans.Append(ctx, p)
		committed(err)
		f.revision = max(f.revision, revision)
		if errors.Is(err, store.ErrUnknown) {
			// The placements stay charged: they are settled before anything else is placed (P3.3).
			return fmt.Errorf("the result of a plan was lost: %w", err)
		}
		if err != nil {
			return err
		}
		if revision != 0 {
			f.placed += p.Tasks()
		}
	}
	return nil
}

// land waits for the flight, where there is one, and takes note of what came of it.
func (l *loop) land() error {
	f := l.flight
	if f == nil {
		return nil
	}
	<-f.done
	l.flight = nil
	l.written, l.placed = max(l.written, f.revision), l.placed+f.placed
	l.misfits.all = l.misfits.all || f.all
	maps.Copy(l.misfits.nodes, f.nodes)
	if f.err != nil {
		l.unplaced = true
	}
	return f.err
}

// landed is land for a flight that is over.
func (l *loop) landed() error {
	select {
	case <-l.landing():
		return l.land()
	default:
		return nil
	}
}

// confirm lets go of what a flight did not place after all: its record was refused, or never written. The snapshot
// holds all that was.
func (l *loop) confirm(snap *store.Snapshot) {
	if len(l.aloft) == 0 || l.flight != nil || l.plans.Unsettled() {
		return
	}
	for key := range l.aloft { // order-free: each attempt is charged by itself
		delete(l.aloft, key)
		l.charge(snap, key)
	}
}

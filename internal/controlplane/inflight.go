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

// inFlightPlan is plan records on their way into the store and from there into the tables. The leader decides on
// meanwhile: the fleet is charged for their placements already (P3.2), and their owners are not decided for until the
// plan has arrived.
type inFlightPlan struct {
	owners map[cluster.OwnerRef]bool
	// checkedNodes are the nodes whose attempts were checked for violations meanwhile; checkedAll stands for all nodes.
	// Attempts that arrive on them are checked again.
	checkedNodes map[string]bool
	checkedAll   bool
	done         chan struct{}
	// The result may be read once done is closed: the number of placed tasks, the revision that holds them, and the
	// error that ended the writes early.
	placed   int
	revision uint64
	err      error
}

// noteChecked takes note of attempts that were checked for violations before the plan arrived.
func (p *inFlightPlan) noteChecked(which *recheckSet) {
	p.checkedAll = p.checkedAll || which.all
	maps.Copy(p.checkedNodes, which.nodes)
}

// hasInFlight reports whether placements of the owner are in flight.
func (l *loop) hasInFlight(o cluster.OwnerRef) bool { return l.inFlight != nil && l.inFlight.owners[o] }

// inFlightDone returns a channel that is closed once the plan in flight has arrived; nil without one.
func (l *loop) inFlightDone() <-chan struct{} {
	if l.inFlight == nil {
		return nil
	}
	return l.inFlight.done
}

// commitInBackground charges placements to the fleet and commits them on a goroutine. No other plan may be in flight.
func (l *loop) commitInBackground(ctx context.Context, snap *store.Snapshot, pending []cluster.Pending,
	placements []scheduler.Placement, began time.Time,
) {
	plan := &inFlightPlan{
		owners: map[cluster.OwnerRef]bool{}, checkedNodes: map[string]bool{}, done: make(chan struct{}),
	}
	ids := make([]string, len(placements))
	for i := range placements {
		pl, id := &placements[i], l.config.NewID()
		p := &pending[pl.Pending]
		ids[i], plan.owners[p.Owner] = id, true
		l.view.chargePlacement(pl, p, id)
	}
	proposals := l.makeProposals(pending, placements, ids)
	for o := range plan.owners { // order-free: each by itself
		l.view.policies.of(snap, o) // the reservations depend on them
		l.queue.mark(o)             // its pending tasks are found again before anything of it is placed again
		l.waiting.drop(o)
	}
	l.inFlight = plan
	go func() {
		defer close(plan.done)
		plan.err = l.appendPlans(ctx, plan, snap, proposals, began)
		if plan.err == nil {
			_, plan.err = l.config.awaitRevision(ctx, plan.revision)
		}
	}()
}

// appendPlans writes the plan records one after the other. Meanwhile the loop does not use the plan log.
func (l *loop) appendPlans(ctx context.Context, plan *inFlightPlan, snap *store.Snapshot, proposals []store.Proposal,
	began time.Time,
) error {
	for _, p := range proposals {
		for i := range p.Owners {
			p.Owners[i].Meter = requestCounterOf(snap, p.Owners[i].Owner)
		}
		committed := l.startSpans(snap, &p, began)
		revision, err := l.plans.Append(ctx, p)
		committed(err)
		plan.revision = max(plan.revision, revision)
		if errors.Is(err, store.ErrUnknown) {
			// The placements stay charged. They are settled before anything else is placed (P3.3).
			return fmt.Errorf("the result of a plan was lost: %w", err)
		}
		if err != nil {
			return err
		}
		if revision != 0 {
			plan.placed += p.Tasks()
		}
	}
	return nil
}

// awaitInFlight waits for the plan in flight, if there is one, and takes its result.
func (l *loop) awaitInFlight() error {
	plan := l.inFlight
	if plan == nil {
		return nil
	}
	<-plan.done
	l.inFlight = nil
	l.writtenRevision, l.placed = max(l.writtenRevision, plan.revision), l.placed+plan.placed
	l.rechecks.merge(plan.checkedNodes, plan.checkedAll)
	if plan.err != nil {
		l.placeAgain = true
	}
	return plan.err
}

// collectInFlight takes the result of the plan in flight if it has arrived. It does not wait.
func (l *loop) collectInFlight() error {
	select {
	case <-l.inFlightDone():
		return l.awaitInFlight()
	default:
		return nil
	}
}

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/fleetview"
	"github.com/berthd/berth/internal/controlplane/writes"
	"github.com/berthd/berth/internal/store"
)

// inFlightPlan is plan records on their way into the store and from there into the tables. The leader decides on
// meanwhile: the fleet is charged for their placements already (P3.2), and their owners are not decided for until the
// plan has arrived.
type inFlightPlan struct {
	owners map[cluster.OwnerRef]bool
	// checked are the nodes whose attempts were checked for violations during the commit. Attempts that arrive on them
	// are checked again.
	checked *fleetview.RecheckSet
	done    chan struct{}
	// The result may be read once done is closed: the numbers of placed tasks and of placements that the store refused,
	// the revision that holds them, and the error that ended the writes early.
	placed   int
	refused  int
	revision uint64
	err      error
}

// planCommits commits the plan records of a term, one plan at a time, in parallel to the cycle. Only the cycle's
// goroutine calls its methods. While a plan is in flight no other code uses the log.
type planCommits struct {
	config  Config
	log     *store.PlanLog
	current *inFlightPlan // nil while nothing is in flight
}

func newPlanCommits(c Config, w *store.Writer, domain uint64) *planCommits {
	return &planCommits{config: c, log: store.NewPlanLog(w, c.Tables, domain)}
}

// isInFlight reports whether a plan is in flight.
func (c *planCommits) isInFlight() bool { return c.current != nil }

// has reports whether placements of the owner are in flight.
func (c *planCommits) has(o cluster.OwnerRef) bool { return c.current != nil && c.current.owners[o] }

// done returns a channel that is closed once the plan in flight has arrived; nil without one.
func (c *planCommits) done() <-chan struct{} {
	if c.current == nil {
		return nil
	}
	return c.current.done
}

// noteChecked takes note of attempts that were checked for violations before the plan in flight arrived.
func (c *planCommits) noteChecked(which *fleetview.RecheckSet) {
	if p := c.current; p != nil {
		p.checked.AddNodes(which)
	}
}

// begin commits plan batches on a goroutine. No other plan may be in flight. began is the start of the decision.
func (c *planCommits) begin(ctx context.Context, snap *store.Snapshot, owners map[cluster.OwnerRef]bool,
	batches []store.PlanBatch, began time.Time,
) {
	plan := &inFlightPlan{owners: owners, checked: fleetview.NewRecheckSet(), done: make(chan struct{})}
	c.current = plan
	go func() {
		defer close(plan.done)
		plan.err = c.append(ctx, plan, snap, batches, began)
		if plan.err == nil {
			_, plan.err = c.config.awaitRevision(ctx, plan.revision)
		}
	}()
}

// append writes the plan records one after the other.
func (c *planCommits) append(ctx context.Context, plan *inFlightPlan, snap *store.Snapshot,
	batches []store.PlanBatch, began time.Time,
) error {
	for _, b := range batches {
		for i := range b.Owners {
			b.Owners[i].RequestCounter = writes.RequestCounterOf(snap, b.Owners[i].Owner)
		}
		committed := c.startSpans(snap, &b, began)
		revision, placed, err := c.log.Append(ctx, b)
		committed(err)
		plan.revision = max(plan.revision, revision)
		if errors.Is(err, store.ErrUnknown) {
			// The placements stay charged. They are settled before anything else is placed (P3.3).
			return fmt.Errorf("the result of a plan was lost: %w", err)
		}
		if err != nil {
			return err
		}
		plan.placed += placed
		plan.refused += b.Tasks() - placed
	}
	return nil
}

// wait waits for the plan in flight and returns it; nil without one.
func (c *planCommits) wait() *inFlightPlan {
	plan := c.current
	if plan != nil {
		<-plan.done
		c.current = nil
	}
	return plan
}

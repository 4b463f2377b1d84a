package controlplane

import (
	"context"
	"errors"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane/storeloss"
	"github.com/berthd/berth/internal/store"
)

// term is the right of a leader to write, and what it wrote. Every commit compares the fence, so a deposed leader
// writes nothing (P1.4). A term is for one goroutine.
type term struct {
	config   Config
	fence    *store.Fence
	writer   *store.Writer
	detector *storeloss.Detector
	plans    *planCommits
	tables   tableProbe
	// written is the revision at which the tables show all writes of this leader. Nothing is decided from older tables,
	// or tasks would be placed again.
	written uint64
}

// newTerm returns the term of the leader of the domain with the number.
func newTerm(c Config, w *store.Writer, fence *store.Fence, d *storeloss.Detector, domain uint64) *term {
	return &term{
		config: c, fence: fence, writer: w, detector: d, tables: tableProbe{config: c},
		plans: newPlanCommits(c, w, domain),
	}
}

// token is the token of the records that agents receive.
func (t *term) token() cluster.Token {
	return cluster.Token{Incarnation: t.fence.Incarnation, Epoch: t.fence.Epoch}
}

// hasUnknownPlacements reports whether a plan may name any node: it is in flight, or its result is unknown.
func (t *term) hasUnknownPlacements() bool { return t.plans.isInFlight() || t.plans.log.Unsettled() }

// noteWritten takes note of the revision of a write.
func (t *term) noteWritten(revision uint64) { t.written = max(t.written, revision) }

// awaitWritten waits until the tables show all that this leader wrote.
func (t *term) awaitWritten(ctx context.Context) error {
	_, err := t.config.awaitRevision(ctx, t.written)
	return err
}

// commit writes units and waits until the tables show them, so that the next decision sees its own acts. It returns
// which units were written.
func (t *term) commit(ctx context.Context, units []store.Unit) (applied []bool, err error) {
	if len(units) == 0 {
		return nil, nil
	}
	applied, revision, err := t.writer.Commit(ctx, units)
	t.noteWritten(revision)
	switch {
	case errors.Is(err, store.ErrTooLarge), errors.Is(err, store.ErrInvalid):
		// This is a fault of this program. It must not keep the other owners from being served.
		t.config.Logger.Error("a decision cannot be committed", "error", err)
	case err != nil:
		return applied, err
	}
	_, err = t.config.awaitRevision(ctx, revision)
	return applied, err
}

// settle finds out whether a plan with a lost result was written, and waits until the tables show the answer.
func (t *term) settle(ctx context.Context) error {
	if !t.plans.log.Unsettled() {
		return nil
	}
	revision, err := t.plans.log.Settle(ctx)
	t.noteWritten(revision)
	if err != nil {
		return err
	}
	if _, err := t.config.awaitRevision(ctx, revision); err != nil {
		return err
	}
	// An applied plan shows in the follower's next changes; nothing is placed before that.
	return errSettled
}

// errSettled ends a cycle that settled a plan, as the cycle's decisions are out of date.
var errSettled = errors.New("a plan was settled; deciding again")

// isDeposed reports whether the tables show that another leader took over. Agents may have seen the token of that
// leader, which is no alarm.
func (t *term) isDeposed(snap *store.Snapshot) bool {
	leader, ok := snap.Leader(t.config.Domain)
	return !ok || leader.Modified != t.fence.Modified
}

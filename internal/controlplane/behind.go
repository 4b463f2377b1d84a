package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/store"
)

// behindLimit is the longest wait of a leader for its tables. A leader with stuck tables resigns: its beats continue,
// so it would keep the domain and decide nothing.
const behindLimit = 10 * time.Second

// probeInterval is the time between two questions of a leader about the revision that its tables should have.
const probeInterval = 5 * time.Second

// behindError says that the tables of this server did not reach a revision in time.
type behindError struct{ at, wanted uint64 }

// Error returns the revision of the tables and the one they should have.
func (e *behindError) Error() string {
	return fmt.Sprintf("this server resigned: its tables did not show in %v what is in the store (they are "+
		"at revision %d, and %d is wanted)",
		behindLimit, e.at, e.wanted)
}

// awaitRevision waits until the tables have reached a revision that the leader needs for its next step, but no longer
// than behindLimit.
func (c *Config) awaitRevision(ctx context.Context, revision uint64) (*store.Snapshot, error) {
	if snap := c.Tables.Snapshot(); snap.Revision() >= revision {
		return c.Tables.WaitFor(ctx, revision)
	}
	brief, cancel := context.WithTimeout(ctx, behindLimit)
	defer cancel()
	snap, err := c.Tables.WaitFor(brief, revision)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, &behindError{c.Tables.Snapshot().Revision(), revision}
	}
	return snap, err
}

// tableProbe finds out whether the tables stopped while nothing is written.
type tableProbe struct {
	config Config
	// at is the time of the last probe, on the boot-time clock, and 0 before the first one. revision is its result.
	at       time.Duration
	revision uint64
}

// check reads the store's revision now and then. Without it, stuck tables would go unnoticed while nothing is written.
// It does not wait for the tables.
func (p *tableProbe) check(ctx context.Context) error {
	now, shown := p.config.Clock(), p.config.Tables.Snapshot().Revision()
	switch {
	case p.at == 0: // the term begins
		p.at = now
	case shown < p.revision && now-p.at > behindLimit:
		return &behindError{shown, p.revision}
	case shown >= p.revision && now-p.at >= probeInterval:
		if revision, err := p.config.Engine.Revision(ctx, string(p.config.Tables.Prefix())); err == nil {
			p.at, p.revision = now, revision
		}
	}
	return nil
}

func isBehind(err error) bool {
	_, ok := errors.AsType[*behindError](err)
	return ok
}

// awaitCaughtUp lets the other servers campaign first after a term that ended because the tables were behind. It
// returns once the tables have caught up, or after behindLimit, as there may be no other server.
func (c *Config) awaitCaughtUp(ctx context.Context, ended error) {
	if behind, ok := errors.AsType[*behindError](ended); ok {
		_, _ = c.awaitRevision(ctx, behind.wanted)
	}
}

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/store"
)

// behindLimit is how long a leader waits for its tables. A leader whose tables stand still would keep the domain and
// decide nothing, for its beats go on: it resigns.
const behindLimit = 10 * time.Second

// probeEvery is how often a leader asks how far its tables should be.
const probeEvery = 5 * time.Second

// behindError says that this server's tables did not reach a revision in time.
type behindError struct{ at, wanted uint64 }

// Error says how far the tables are.
func (e *behindError) Error() string {
	return fmt.Sprintf("this server resigned: its tables did not show in %v what is in the store (they are "+
		"at revision %d, and %d is wanted)",
		behindLimit, e.at, e.wanted)
}

// await waits until the tables have reached a revision, which a leader needs for its next step, for behindLimit at
// most.
func (c *Config) await(ctx context.Context, revision uint64) (*store.Snapshot, error) {
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

// probe asks now and then how far the tables should be, by the leader's last beat, so that tables that stand still are
// noticed where nothing is written, as then nothing is seen that asks for it. It does not wait for them.
func (l *loop) probe(ctx context.Context) error {
	now, at := l.config.Clock(), l.config.Tables.Snapshot().Revision()
	switch {
	case l.probed == 0: // the reign begins
		l.probed = now
	case at < l.probedFor && now-l.probed > behindLimit:
		return &behindError{at, l.probedFor}
	case at >= l.probedFor && now-l.probed >= probeEvery:
		if beat, err := l.config.Engine.Read(ctx, l.config.Tables.Prefix().Beat(l.config.Domain)); err == nil {
			l.probed, l.probedFor = now, beat.Modified
		}
	}
	return nil
}

func isBehind(err error) bool {
	_, ok := errors.AsType[*behindError](err)
	return ok
}

// yield gives the others a turn after a reign that ended because the tables were behind: this server stands again once
// they have caught up, or after a while, as nobody else may be there.
func (c *Config) yield(ctx context.Context, ended error) {
	if behind, ok := errors.AsType[*behindError](ended); ok {
		_, _ = c.await(ctx, behind.wanted)
	}
}

package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/store"
)

// submission holds the units of one report, and the channel for their result.
type submission struct {
	units []store.Unit
	done  chan committed
}

type committed struct {
	applied  []bool
	revision uint64
	err      error
}

const (
	// maxUnits limits the units of one commit.
	maxUnits = 4096
	// A commit of burstUnits or more is followed by a pause as long as the commit, maxBurstPause at most, or up to
	// maxPlanPause while plans arrive. Reports that arrive in that time are committed together, and do not delay
	// placements.
	burstUnits    = 128
	maxBurstPause = 20 * time.Millisecond
	maxPlanPause  = 100 * time.Millisecond
)

// commitQueue commits the units of many reports together, so that many agents share one write to disk.
type commitQueue struct {
	config  *Config
	writer  *store.Writer
	reach   *storeReach
	ended   <-chan struct{} // closed when the dispatcher ends
	waiting chan submission
}

// submit passes units to run and waits for the result.
func (q *commitQueue) submit(ctx context.Context, units []store.Unit) ([]bool, uint64, error) {
	if len(units) == 0 {
		return nil, 0, nil
	}
	s := submission{units: units, done: make(chan committed, 1)}
	cut := q.reach.unreachable()
	select {
	case q.waiting <- s:
	case <-q.ended:
		return nil, 0, errEnded
	case <-cut:
		return nil, 0, errCutOff
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	select {
	case c := <-s.done:
		return c.applied, c.revision, c.err
	case <-q.ended:
		return nil, 0, errEnded
	case <-cut:
		return nil, 0, errCutOff
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
}

// run commits all waiting submissions together, again and again. A submission that writes a key of the batch waits for
// the next batch.
func (q *commitQueue) run(ctx context.Context) error {
	var held *submission
	for {
		first := held
		held = nil
		if first == nil {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case s := <-q.waiting:
				first = &s
			}
		}
		batch := newBatch(*first)
	gather:
		for len(batch.units) < maxUnits {
			select {
			case s := <-q.waiting:
				if !batch.add(s) {
					held = &s
					break gather
				}
			default:
				break gather
			}
		}
		began := q.config.Clock()
		applied, revision, err := q.writer.Commit(ctx, batch.units)
		if errors.Is(err, store.ErrTooLarge) || errors.Is(err, store.ErrInvalid) {
			// One report that cannot be written is refused. All others are written.
			q.config.Logger.Warn("a report cannot be written", "error", err)
			err = nil
		}
		batch.finish(applied, revision, err)
		if len(batch.units) >= burstUnits && !q.pauseAfterBurst(ctx, min(q.config.Clock()-began, maxBurstPause)) {
			return ctx.Err()
		}
	}
}

// pauseAfterBurst waits between two commits of a burst, and longer while plans arrive, maxPlanPause at most. It returns
// false if the context ended.
func (q *commitQueue) pauseAfterBurst(ctx context.Context, least time.Duration) bool {
	for until := q.config.Clock() + maxPlanPause; ; least = maxBurstPause {
		plans := q.config.Tables.Snapshot().PlansWritten()
		if pause.For(ctx, least) != nil {
			return false
		}
		if q.config.Tables.Snapshot().PlansWritten() == plans || q.config.Clock() >= until {
			return true
		}
	}
}

type batch struct {
	units   []store.Unit
	members []submission
	keys    map[string]bool
}

func newBatch(s submission) *batch {
	b := &batch{keys: map[string]bool{}}
	b.add(s)
	return b
}

// add adds a submission, or returns false if it writes a key of the batch.
func (b *batch) add(s submission) bool {
	for i := range s.units {
		for j := range s.units[i].Ops {
			if b.keys[s.units[i].Ops[j].Key] {
				return false
			}
		}
	}
	for i := range s.units {
		for j := range s.units[i].Ops {
			b.keys[s.units[i].Ops[j].Key] = true
		}
	}
	b.units = append(b.units, s.units...)
	b.members = append(b.members, s)
	return true
}

func (b *batch) finish(applied []bool, revision uint64, err error) {
	at := 0
	for _, m := range b.members {
		n := len(m.units)
		m.done <- committed{applied[at : at+n], revision, err}
		at += n
	}
}

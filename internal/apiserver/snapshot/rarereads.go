package snapshot

import (
	"context"
	"sync"
	"time"

	"github.com/berthd/berth/internal/store"
)

const (
	// RareReadPause is the minimum time between the starts of two rounds, and rareReadTimeout bounds a round.
	RareReadPause   = 100 * time.Millisecond
	rareReadTimeout = 2 * time.Second
)

// RareReads reads the store for requests that miss a record in the tables, such as a new token. Requests that come
// during a round share the next round. Unknown clients cost the store at most one read in RareReadPause, however many
// requests they send. The zero value is ready. Safe for concurrent use.
type RareReads struct {
	turn sync.Mutex // held by the request that runs a round
	last time.Time  // start of the last round; guarded by turn

	mu   sync.Mutex
	next *round // not started; nil while no request waits
}

// round is one linearizable read.
type round struct {
	done chan struct{} // closed once the other fields are set
	snap *store.Snapshot
	err  error
}

// Snapshot returns a snapshot that holds all that the store held at the time of the call.
func (f *RareReads) Snapshot(ctx context.Context, tables Tables) (*store.Snapshot, error) {
	f.mu.Lock()
	r, mine := f.next, f.next == nil
	if mine {
		r = &round{done: make(chan struct{})}
		f.next = r
	}
	f.mu.Unlock()
	if mine {
		f.run(context.WithoutCancel(ctx), r, tables) // others may wait for it
	}
	select {
	case <-r.done:
		return r.snap, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run waits for the turn, and reads.
func (f *RareReads) run(ctx context.Context, r *round, tables Tables) {
	f.turn.Lock()
	defer f.turn.Unlock()
	time.Sleep(RareReadPause - time.Since(f.last))
	f.mu.Lock()
	f.next = nil
	f.mu.Unlock()
	f.last = time.Now()
	ctx, cancel := context.WithTimeout(ctx, rareReadTimeout)
	defer cancel()
	r.snap, r.err = tables.Settled(ctx)
	close(r.done)
}

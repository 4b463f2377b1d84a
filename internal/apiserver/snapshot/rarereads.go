package snapshot

import (
	"context"
	"sync"
	"time"

	"github.com/berthd/berth/internal/store"
)

const (
	// RareReadPause is the least pause between two rounds, and freshLimit how long one may take.
	RareReadPause   = 100 * time.Millisecond
	rareReadTimeout = 2 * time.Second
)

// RareReads lets requests that miss something in the tables look once more at what the store holds now. All that ask
// while a round runs share the next one, and rounds are rare: so strangers who ask for what does not exist cost the
// store no more than one read in freshEvery, however many they are. The zero value is ready.
type RareReads struct {
	turn sync.Mutex // held by the one whose round runs
	last time.Time  // when the last one began; the turn's

	mu   sync.Mutex
	next *round // it has not begun; nil while nobody waits for one
}

// round is one linearizable read.
type round struct {
	done chan struct{} // closed once the rest stands
	snap *store.Snapshot
	err  error
}

// Snapshot returns a snapshot that holds all that the store held when it was called.
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

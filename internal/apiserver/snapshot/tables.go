package snapshot

import (
	"context"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Tables are the source of reads; store.Tables is one. Safe for concurrent use.
type Tables interface {
	// Snapshot returns the present state, without waiting.
	Snapshot() *store.Snapshot
	// WaitFor returns a snapshot at the revision or after it.
	WaitFor(ctx context.Context, revision uint64) (*store.Snapshot, error)
	// Synced is closed once the tables have held the whole store.
	Synced() <-chan struct{}
	// Follow returns a follower of the topics, of all topics without arguments. Its caller closes it.
	Follow(topics ...store.Topic) *store.Follower
	// Settled returns a snapshot that holds all that the engine held at the time of the call.
	Settled(ctx context.Context) (*store.Snapshot, error)
	// Pulse returns a node's last sign of life.
	Pulse(node string) (cluster.Pulse, bool)
}

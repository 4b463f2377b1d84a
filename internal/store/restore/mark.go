package restore

import (
	"context"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/election"
)

// Decision is what happens to tasks that a restored store does not know. An empty State leaves that to the operator:
// the leader waits for `berth operator recover`.
type Decision struct {
	State cluster.RecoveryState
	At    time.Time
}

// Mark marks a store that may have lost acknowledged writes, for the given cause, a sentence (P1.7). It raises the
// incarnation of each domain, records the decision, and deletes the records of servers, which write them again when
// they start. It runs before a server uses the store, and may be repeated.
func Mark(ctx context.Context, engine store.Engine, prefix store.Prefix, cause string, d Decision) error {
	if err := election.Reincarnate(ctx, engine, prefix, cause); err != nil {
		return err
	}
	servers, err := engine.List(ctx, prefix.Server(""))
	if err != nil {
		return fmt.Errorf("list the records of the servers: %w", err)
	}
	for _, record := range servers.Records {
		if _, err := engine.Commit(ctx, []store.Group{{Ops: []store.Op{{Key: record.Key, Delete: true}}}}); err != nil {
			return fmt.Errorf("remove the records of the servers: %w", err)
		}
	}
	if d.State == "" {
		return nil
	}
	recoveries, err := engine.List(ctx, prefix.Recovery(""))
	if err != nil {
		return fmt.Errorf("list the recoveries: %w", err)
	}
	for _, record := range recoveries.Records {
		if err := decide(ctx, engine, record, d); err != nil {
			return err
		}
	}
	return nil
}

// decide writes the decision into the record of a recovery.
func decide(ctx context.Context, engine store.Engine, record store.Record, d Decision) error {
	r, err := store.Decode[cluster.Recovery](record.Value)
	if err != nil {
		return fmt.Errorf("read %s: %w", record.Key, err)
	}
	r.State, r.Decided, r.By = d.State, d.At.UTC(), "the restore"
	value, err := store.Encode(r)
	if err != nil {
		return err
	}
	_, err = engine.Commit(ctx, []store.Group{{
		Compares: []store.Compare{{Key: record.Key, Modified: record.Modified}},
		Ops:      []store.Op{{Key: record.Key, Value: value}},
	}})
	if err != nil {
		return fmt.Errorf("write %s: %w", record.Key, err)
	}
	return nil
}

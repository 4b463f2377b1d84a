package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// Reincarnate marks a store that may have lost acknowledged writes (P1.7). Such a store was made from a snapshot, or
// went on with less than a quorum. In every domain the incarnation rises above the store's and to the present time, and
// the epoch rises. The leadership has no holder, and a recovery is needed, for the given cause, a sentence. Reincarnate
// must run before the engine serves anyone else. It may be repeated.
func Reincarnate(ctx context.Context, engine store.Engine, prefix store.Prefix, cause string) error {
	listing, err := engine.List(ctx, prefix.Leader(""))
	if err != nil {
		return fmt.Errorf("list leaders: %w", err)
	}
	for _, record := range listing.Records {
		if err := reincarnate(ctx, engine, prefix, record, cause); err != nil {
			return err
		}
	}
	return nil
}

// reincarnate marks the domain of one leader record.
func reincarnate(ctx context.Context, engine store.Engine, prefix store.Prefix, record store.Record,
	cause string,
) error {
	domain := record.Key[len(prefix.Leader("")):]
	leader, err := store.Decode[cluster.Leader](record.Value)
	if err != nil {
		return fmt.Errorf("leader record %s: %w", record.Key, err)
	}
	now := time.Now()
	leader.Incarnation = max(uint64(now.UnixMilli()), leader.Incarnation+1)
	leader.Epoch++
	leader.Holder, leader.Member, leader.Since = "", "", now.UTC()
	value, err := store.Encode(leader)
	if err != nil {
		return err
	}
	recovery := cluster.Recovery{State: cluster.RecoveryNeeded, Cause: cause, Since: now.UTC()}
	former, err := engine.Read(ctx, prefix.Recovery(domain))
	switch {
	case err == nil: // a record of another build may be unreadable: it is replaced, and recovery is requested again
		if r, err := store.Decode[cluster.Recovery](former.Value); err == nil {
			recovery.Shown = r.Shown
		}
	case !errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("read the recovery of %s: %w", domain, err)
	}
	needed, err := store.Encode(recovery)
	if err != nil {
		return err
	}
	result, err := engine.Commit(ctx, []store.Group{{
		Compares: []store.Compare{{Key: record.Key, Modified: record.Modified}},
		Ops:      []store.Op{{Key: record.Key, Value: value}, {Key: prefix.Recovery(domain), Value: needed}},
	}})
	if err != nil {
		return fmt.Errorf("write leader record %s: %w", record.Key, err)
	}
	if !result.Applied[0] {
		return fmt.Errorf("leader record %s changed during the takeover: the store is in use", record.Key)
	}
	return nil
}

package election

import (
	"context"
	"fmt"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// HandOver releases the leadership of a domain that the server holds, so that the others need not wait for its silence
// (P1.3). The server must not write by that leadership any more; the store refuses its late writes (P1.4). Nothing
// happens if another server leads.
func HandOver(ctx context.Context, engine store.Engine, prefix store.Prefix, domain, server string) error {
	key := prefix.Leader(domain)
	record, err := engine.Read(ctx, key)
	if err != nil {
		return fmt.Errorf("read who leads %s: %w", domain, err)
	}
	leader, err := store.Decode[cluster.Leader](record.Value)
	if err != nil {
		return fmt.Errorf("leader record of %s: %w", domain, err)
	}
	if leader.Holder != server {
		return nil
	}
	leader.Holder, leader.Member = "", ""
	value, err := store.Encode(leader)
	if err != nil {
		return err
	}
	_, err = engine.Commit(ctx, []store.Group{{
		Compares: []store.Compare{{Key: key, Modified: record.Modified}}, Ops: []store.Op{{Key: key, Value: value}},
	}})
	if err != nil {
		return fmt.Errorf("hand over the domain %s: %w", domain, err)
	}
	return nil
}

package controlplane

import (
	"cmp"
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/internal/store"
)

// errNotByRecords ends the following of foreign records, as the domain has another scheduler.
var errNotByRecords = errors.New("the scheduler of the domain is not kv")

// followForeign has the store deliver the records of other programs soon, while the domain's scheduler has the type kv.
// Only some engines need that.
func (p *Plane) followForeign(ctx context.Context, _ *TermWriter) error {
	engine := p.config.Foreign
	if engine == nil {
		return nil
	}
	follower, prefix := p.config.Tables.Follow(store.TopicDomain), p.config.Tables.Prefix()
	defer follower.Close()
	for {
		if err := p.awaitKV(ctx, follower, true); err != nil {
			return err
		}
		group, following := errgroup.WithContext(ctx)
		group.Go(func() error { return engine.FollowForeign(following, prefix.Attempts(), prefix.IsForeign) })
		group.Go(func() error { return cmp.Or(p.awaitKV(following, follower, false), errNotByRecords) })
		if err := group.Wait(); !errors.Is(err, errNotByRecords) {
			return err
		}
	}
}

// awaitKV waits until the domain's scheduler has the type kv, or another type.
func (p *Plane) awaitKV(ctx context.Context, follower *store.Follower, want bool) error {
	for {
		follower.Take()
		if e, _ := p.config.Tables.Snapshot().Domain(p.config.Domain); e.Value.HasKVScheduler() == want {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-follower.Wake():
		}
	}
}

package memory

import (
	"context"

	"github.com/berthd/berth/internal/store"
)

var _ store.ServerEngine = (*Engine)(nil)

// ReadTogether is part of store.TogetherReader.
func (e *Engine) ReadTogether(ctx context.Context, keys ...string) ([]store.Record, error) {
	if _, err := e.lockWhenUp(ctx); err != nil {
		return nil, err
	}
	defer e.d.mu.Unlock()
	records := make([]store.Record, len(keys))
	for i, key := range keys {
		records[i] = e.d.records[key]
	}
	return records, nil
}

// Run is part of store.ServerEngine. It only waits: nothing needs maintenance.
func (e *Engine) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-e.closed:
		return store.ErrClosed
	}
}

// Health is part of store.ServerEngine.
func (e *Engine) Health(ctx context.Context) (store.EngineHealth, error) {
	if _, err := e.lockWhenUp(ctx); err != nil {
		return store.EngineHealth{}, err
	}
	defer e.d.mu.Unlock()
	h := store.EngineHealth{Writes: !e.d.full, Quorum: true, Revision: e.d.revision}
	if e.d.full {
		h.Reason = store.ErrNoSpace.Error()
	}
	return h, nil
}

// Membership is part of store.ServerEngine: the data have no members.
func (e *Engine) Membership() store.Membership { return nil }

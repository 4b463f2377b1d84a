package memory

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/berthd/berth/internal/store"
)

// watch is a place in the history. It holds no copy of anything, so that a slow
// reader costs nothing and always gets the latest value of each key.
type watch struct {
	e      *Engine
	ctx    context.Context //nolint:containedctx // the contract ends a watch with the context of its opening
	prefix string
	closed chan struct{}
	once   sync.Once

	at       uint64 // what was delivered
	restores int    // of the data, when it was delivered
	whole    bool   // the next batch is a resync
}

// Watch is part of store.Engine.
func (e *Engine) Watch(ctx context.Context, prefix string, after uint64) store.Watch {
	w := &watch{e: e, ctx: ctx, prefix: prefix, closed: make(chan struct{}), at: after, whole: after == 0}
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	w.restores = e.d.restores
	w.whole = w.whole || after > e.d.revision // of data that a restore took away
	return w
}

// Close is part of store.Watch.
func (w *watch) Close() { w.once.Do(func() { close(w.closed) }) }

// Next is part of store.Watch.
func (w *watch) Next(ctx context.Context) (store.Batch, error) {
	if err := store.CheckPrefix(w.prefix); err != nil {
		return store.Batch{}, err
	}
	for {
		if err := w.over(ctx); err != nil {
			return store.Batch{}, err
		}
		d := w.e.d
		d.mu.Lock()
		if !d.down {
			if batch, ok := w.take(); ok {
				d.mu.Unlock()
				return batch, nil
			}
		}
		changed := d.changed
		d.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-w.ctx.Done():
		case <-w.closed:
		case <-w.e.closed:
		case <-changed:
		}
	}
}

// over returns why the watch ended, if it did.
func (w *watch) over(ctx context.Context) error {
	select {
	case <-w.closed:
		return store.ErrClosed
	case <-w.e.closed:
		return store.ErrClosed
	default:
	}
	if err := w.ctx.Err(); err != nil {
		return err
	}
	return ctx.Err()
}

// take returns what there is beyond the watch's place, and moves the place. The
// lock is held.
func (w *watch) take() (store.Batch, bool) {
	d := w.e.d
	lost := w.restores != d.restores || w.at < d.compacted || w.at > d.revision
	if w.whole || lost {
		return w.resync(), true
	}
	if w.at == d.revision {
		return store.Batch{}, false
	}
	from, _ := slices.BinarySearchFunc(d.events, w.at+1, byRevision)
	latest := make(map[string]uint64)
	for _, e := range d.events[from:] {
		if strings.HasPrefix(e.key, w.prefix) {
			latest[e.key] = e.revision
		}
	}
	if d.consul && len(latest) > 0 {
		return w.resync(), true
	}
	batch := store.Batch{Revision: d.revision}
	for key, revision := range latest {
		record, stands := d.records[key]
		if !stands {
			record = store.Record{Key: key, Modified: revision}
		}
		batch.Changes = append(batch.Changes, store.Change{Record: record, Deleted: !stands})
	}
	slices.SortFunc(batch.Changes, func(a, b store.Change) int { return strings.Compare(a.Key, b.Key) })
	w.at = d.revision
	return batch, true
}

// resync returns the whole prefix. The lock is held.
func (w *watch) resync() store.Batch {
	d := w.e.d
	batch := store.Batch{Revision: d.revision, Resync: true}
	for _, record := range d.list(w.prefix) {
		batch.Changes = append(batch.Changes, store.Change{Record: record})
	}
	w.at, w.restores, w.whole = d.revision, d.restores, false
	return batch
}

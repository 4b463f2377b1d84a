package memory

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/berthd/berth/internal/store"
)

// watch is a position in the history. It holds no copy of any record, so that a slow reader costs nothing and always
// gets the latest value of each key.
type watch struct {
	e      *Engine
	ctx    context.Context //nolint:containedctx // the contract ends a watch with the context of its opening
	prefix string
	closed chan struct{}
	once   sync.Once

	position    uint64 // the last delivered revision
	seen        uint64 // with Options.Consul, the revision of the data up to which the watch has nothing to deliver
	restores    int    // the restores of the data before that delivery
	needsResync bool   // the next batch is a resync

	hasDelivered bool // a resync was delivered, or the watch began after a revision
}

// Watch is part of store.Engine.
func (e *Engine) Watch(ctx context.Context, prefix string, after uint64) store.Watch {
	w := &watch{
		e: e, ctx: ctx, prefix: prefix, closed: make(chan struct{}), position: after,
		needsResync: after == 0, hasDelivered: after > 0,
	}
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	w.restores = e.d.restores
	w.needsResync = w.needsResync || after > e.d.revision // a restore removed that revision
	if e.d.consul && after <= e.d.revision {
		e.raiseFloor(after)
		w.needsResync = true // deletions after that revision may be dropped
	}
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
		if err := w.endReason(ctx); err != nil {
			return store.Batch{}, err
		}
		d := w.e.d
		d.mu.Lock()
		if !d.down {
			if batch, ok := w.takeChanges(); ok {
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

// endReason returns why the watch ended, or nil.
func (w *watch) endReason(ctx context.Context) error {
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

// takeChanges returns the changes beyond the position, and advances the position. The lock is held.
func (w *watch) takeChanges() (store.Batch, bool) {
	d := w.e.d
	if d.consul {
		return w.takeWhole()
	}
	lost := w.restores != d.restores || w.position < d.compacted || w.position > d.revision
	if w.needsResync || lost {
		return w.resync(), true
	}
	if w.position == d.revision {
		return store.Batch{}, false
	}
	from, _ := slices.BinarySearchFunc(d.events, w.position+1, byRevision)
	latest := make(map[string]uint64)
	for _, e := range d.events[from:] {
		if strings.HasPrefix(e.key, w.prefix) {
			latest[e.key] = e.revision
		}
	}
	batch := store.Batch{Revision: d.revision}
	for key, revision := range latest {
		record, exists := d.records[key]
		if !exists {
			record = store.Record{Key: key, Modified: revision}
		}
		batch.Changes = append(batch.Changes, store.Change{Record: record, Deleted: !exists})
	}
	slices.SortFunc(batch.Changes, func(a, b store.Change) int { return strings.Compare(a.Key, b.Key) })
	w.position = d.revision
	return batch, true
}

// takeWhole is takeChanges with Options.Consul: the whole prefix if something under it changed, and otherwise progress
// up to the revisions that the handle has returned. The lock is held.
func (w *watch) takeWhole() (store.Batch, bool) {
	d := w.e.d
	from, _ := slices.BinarySearchFunc(d.events, w.seen+1, byRevision)
	if w.needsResync || w.restores != d.restores || w.seen < d.compacted ||
		slices.ContainsFunc(d.events[from:], func(e event) bool { return strings.HasPrefix(e.key, w.prefix) }) {
		return w.resync(), true
	}
	w.seen = d.revision
	if revision := w.e.raiseFloor(w.position); revision > w.position {
		w.position = revision
		return store.Batch{Revision: revision}, true
	}
	return store.Batch{}, false
}

// resync returns the whole prefix. The lock is held.
func (w *watch) resync() store.Batch {
	d := w.e.d
	batch := store.Batch{Revision: w.e.raiseFloor(d.revisionOf(w.prefix)), Resync: true}
	batch.WentBack = w.restores != d.restores && w.hasDelivered
	for _, record := range d.list(w.prefix) {
		batch.Changes = append(batch.Changes, store.Change{Record: record})
	}
	w.position, w.seen, w.restores, w.needsResync = batch.Revision, d.revision, d.restores, false
	w.hasDelivered = true
	return batch
}

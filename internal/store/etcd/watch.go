package etcd

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berthd/berth/internal/store"
)

// Pauses of a watch: before it asks etcd how far it is, before it asks again, and
// before it connects again after a fault.
const (
	patience = 5 * time.Millisecond
	again    = 50 * time.Millisecond
	mend     = 50 * time.Millisecond
)

// watch pumps etcd's events into a set of pending changes, one a key. A reader that is slow
// thus costs a map entry for each changed key, and nothing in etcd.
type watch struct {
	e      *Engine
	ctx    context.Context //nolint:containedctx // the contract ends a watch with the context of its opening
	cancel context.CancelFunc
	prefix string
	nudge  chan struct{} // the engine returned a revision that the watch may not have reached
	ready  chan struct{} // something is pending
	closed chan struct{}
	once   sync.Once

	mu        sync.Mutex
	pending   map[string]store.Change
	resync    bool
	revision  uint64 // what pending leads to
	delivered uint64
}

// Watch is part of store.Engine.
func (e *Engine) Watch(ctx context.Context, prefix string, after uint64) store.Watch {
	inner, cancel := context.WithCancel(ctx)
	w := &watch{
		e: e, ctx: inner, cancel: cancel, prefix: prefix,
		nudge:    make(chan struct{}, 1),
		ready:    make(chan struct{}, 1),
		closed:   make(chan struct{}),
		pending:  make(map[string]store.Change),
		revision: after, delivered: after,
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.enter(ctx) != nil || store.CheckPrefix(prefix) != nil {
		return w // Next says why
	}
	e.watches[w] = struct{}{}
	e.running.Go(w.run)
	return w
}

// Close is part of store.Watch.
func (w *watch) Close() {
	w.once.Do(func() {
		close(w.closed)
		w.cancel()
	})
}

// Next is part of store.Watch.
func (w *watch) Next(ctx context.Context) (store.Batch, error) {
	if err := store.CheckPrefix(w.prefix); err != nil {
		return store.Batch{}, err
	}
	for {
		select { // an end comes before what is still pending
		case <-w.closed:
			return store.Batch{}, store.ErrClosed
		default:
		}
		for _, c := range []context.Context{w.ctx, ctx} {
			if err := w.e.enter(c); err != nil {
				return store.Batch{}, err
			}
		}
		if batch, ok := w.take(); ok {
			return batch, nil
		}
		select {
		case <-ctx.Done():
		case <-w.ctx.Done():
		case <-w.closed:
		case <-w.e.life.Done():
		case <-w.ready:
		}
	}
}

// take empties what is pending into a batch.
func (w *watch) take() (store.Batch, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.resync && w.revision <= w.delivered {
		return store.Batch{}, false
	}
	batch := store.Batch{Revision: w.revision, Resync: w.resync}
	if len(w.pending) > 0 {
		batch.Changes = slices.SortedFunc(maps.Values(w.pending), func(a, b store.Change) int { return strings.Compare(a.Key, b.Key) })
		w.pending = make(map[string]store.Change)
	}
	w.resync, w.delivered = false, w.revision
	return batch, true
}

// run follows etcd until the watch or the engine ends; whatever goes wrong is
// mended by another attempt, from the place reached or with a resync.
func (w *watch) run() {
	defer func() {
		w.e.mu.Lock()
		delete(w.e.watches, w)
		w.e.mu.Unlock()
	}()
	defer context.AfterFunc(w.e.life, w.cancel)() // the engine's end ends the pump
	lost := w.revision == 0
	for w.ctx.Err() == nil {
		if lost {
			listing, err := w.e.List(w.ctx, w.prefix)
			if err != nil {
				w.pause()
				continue
			}
			w.replace(listing)
		}
		if lost = w.follow(); !lost {
			w.pause()
		}
	}
}

func (w *watch) pause() {
	select {
	case <-w.ctx.Done():
	case <-time.After(mend):
	}
}

// follow streams events from the place reached. It returns whether that place is lost, so
// that only a resync helps.
func (w *watch) follow() (lost bool) {
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	at := w.place()
	if w.e.server == nil { // an endpoint elsewhere that lost its leader would say nothing for ever
		ctx = clientv3.WithRequireLeader(ctx)
	}
	events := w.e.client.Watch(ctx, w.prefix, clientv3.WithPrefix(), clientv3.WithRev(int64(at)+1), clientv3.WithCreatedNotify())
	ask := time.NewTimer(patience)
	defer ask.Stop()
	armed := true
	for {
		select {
		case response, ok := <-events:
			switch {
			case !ok:
				return false
			case response.CompactRevision != 0:
				return true
			case response.Err() != nil:
				return false
			case response.Created && uint64(response.Header.Revision) < at && !w.lags(ctx, at):
				return true // the data are older than what the watch has seen
			}
			w.merge(&response)
		case <-w.nudge:
			if !armed && w.place() < w.e.observed.Load() {
				ask.Reset(patience)
				armed = true
			}
		case <-ask.C:
			armed = false
			if w.place() < w.e.observed.Load() {
				_ = w.e.client.RequestProgress(ctx) // asked again while it does not help
				ask.Reset(again)
				armed = true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// lags says that the data are as new as the place reached after all, and that only the server that was asked has not got there yet.
func (w *watch) lags(ctx context.Context, at uint64) bool {
	present, err := reading(ctx, w.e, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return w.e.client.Get(ctx, "berth", clientv3.WithCountOnly())
	})
	return err == nil && uint64(present.Header.Revision) >= at
}

func (w *watch) place() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.revision
}

// replace makes a listing the whole of what is pending.
func (w *watch) replace(listing store.Listing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = make(map[string]store.Change, len(listing.Records))
	for _, r := range listing.Records {
		w.pending[r.Key] = store.Change{Record: r}
	}
	w.resync, w.revision = true, listing.Revision
	w.signal()
}

// merge adds events to what is pending; in a pending resync a deleted key is left out.
func (w *watch) merge(response *clientv3.WatchResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if response.IsProgressNotify() {
		w.revision = max(w.revision, uint64(response.Header.Revision))
	}
	for _, event := range response.Events {
		change := store.Change{Record: record(event.Kv), Deleted: event.Type == clientv3.EventTypeDelete}
		if change.Deleted {
			change.Value = nil
		}
		if change.Deleted && w.resync {
			delete(w.pending, change.Key)
		} else {
			w.pending[change.Key] = change
		}
		w.revision = max(w.revision, change.Modified)
	}
	w.signal()
}

// signal wakes Next. The lock is held.
func (w *watch) signal() {
	if w.resync || w.revision > w.delivered {
		select {
		case w.ready <- struct{}{}:
		default:
		}
	}
}

package etcd

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/store"
)

// Pauses of a watch: before it requests progress from etcd, before it repeats the request, and before it reconnects
// after a fault.
const (
	progressDelay         = 5 * time.Millisecond
	progressRetryInterval = 50 * time.Millisecond
	reconnectPause        = 50 * time.Millisecond
)

// minPendingLimit is the number of pending changes below which superseded ones are not removed.
const minPendingLimit = 8192

// watch collects etcd's events as pending changes. A slow reader thus costs at most two changes for each changed key,
// besides minPendingLimit ones, and nothing in etcd.
type watch struct {
	records       *records
	ctx           context.Context //nolint:containedctx // the contract ends a watch with the context of its opening
	cancel        context.CancelFunc
	prefix        string
	checkProgress chan struct{} // the engine returned a revision that the watch may not have reached
	ready         chan struct{} // something is pending
	closed        chan struct{}
	once          sync.Once

	mu           sync.Mutex
	pending      []store.Change // in the order of arrival; a key may have several, and newest reduces them
	pendingLimit int            // the number of pending changes at which they are reduced
	resync       bool
	wentBack     bool   // the data went back before the resync
	revision     uint64 // the revision that pending leads to
	delivered    uint64
}

// Watch is part of store.Engine.
func (r *records) Watch(ctx context.Context, prefix string, after uint64) store.Watch {
	inner, cancel := context.WithCancel(ctx)
	w := &watch{
		records: r, ctx: inner, cancel: cancel, prefix: prefix,
		checkProgress: make(chan struct{}, 1),
		ready:         make(chan struct{}, 1),
		closed:        make(chan struct{}),
		pendingLimit:  minPendingLimit, revision: after, delivered: after,
	}
	r.ending.Lock()
	defer r.ending.Unlock()
	if r.checkOpen(ctx) != nil || store.CheckPrefix(prefix) != nil {
		return w // Next returns the reason
	}
	r.watches.add(w)
	r.running.Go(w.run)
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
		select { // an end takes precedence over pending changes
		case <-w.closed:
			return store.Batch{}, store.ErrClosed
		default:
		}
		for _, c := range []context.Context{w.ctx, ctx} {
			if err := w.records.checkOpen(c); err != nil {
				return store.Batch{}, err
			}
		}
		if batch, ok := w.takeBatch(); ok {
			return batch, nil
		}
		select {
		case <-ctx.Done():
		case <-w.ctx.Done():
		case <-w.closed:
		case <-w.records.lifetime.Done():
		case <-w.ready:
		}
	}
}

// takeBatch moves the pending changes into a batch.
func (w *watch) takeBatch() (store.Batch, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.resync && w.revision <= w.delivered {
		return store.Batch{}, false
	}
	batch := store.Batch{Revision: w.revision, Resync: w.resync, WentBack: w.wentBack}
	if len(w.pending) > 0 {
		batch.Changes = newest(w.pending, w.resync)
		w.pending, w.pendingLimit = nil, minPendingLimit
	}
	w.resync, w.wentBack, w.delivered = false, false, w.revision
	return batch, true
}

// run follows etcd until the watch or the engine ends. After any fault it tries again, from the position reached or
// with a resync.
func (w *watch) run() {
	defer w.records.watches.remove(w)
	defer context.AfterFunc(w.records.lifetime, w.cancel)() // the end of the engine ends the watch
	lost := w.revision == 0
	for w.ctx.Err() == nil {
		if lost {
			listing, err := w.records.List(w.ctx, w.prefix)
			if err != nil {
				_ = pause.For(w.ctx, reconnectPause)
				continue
			}
			w.replace(listing)
		}
		if lost = w.follow(); !lost {
			_ = pause.For(w.ctx, reconnectPause)
		}
	}
}

// follow streams events from the position reached. It returns true if that position is lost and only a resync helps.
func (w *watch) follow() (lost bool) {
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	at := w.position()
	if w.records.server != nil {
		return w.followServer(ctx, at)
	}
	return w.followClient(ctx, at)
}

// followServer takes the events directly from the server, since the layer for clients would copy each of them.
func (w *watch) followServer(ctx context.Context, at uint64) (lost bool) {
	stream := w.records.server.Server.Watchable().NewWatchStream()
	defer stream.Close()
	if uint64(stream.Rev()) < at && !w.serverLags(ctx, at) {
		return true // the data are older than the watch's position
	}
	key, end := []byte(w.prefix), []byte(clientv3.GetPrefixRangeEnd(w.prefix))
	if w.prefix == "" {
		key, end = []byte{0}, []byte{} // the server's form of all keys
	}
	id, err := stream.Watch(ctx, clientv3.AutoWatchID, key, end, int64(at)+1)
	if err != nil {
		return false
	}
	take := func(r mvcc.WatchResponse) (on, lost bool) {
		mvcc.ReportEventReceived(len(r.Events))
		if r.CompactRevision != 0 {
			return false, true
		}
		w.merge(r.Events, r.Revision)
		return true, false
	}
	return pump(ctx, w, stream.Chan(), take, func() { stream.RequestProgress(id) })
}

// followClient takes the events from an endpoint elsewhere. An endpoint without a leader would stay silent forever, so
// the watch requires one.
func (w *watch) followClient(ctx context.Context, at uint64) (lost bool) {
	ctx = clientv3.WithRequireLeader(ctx)
	responses := w.records.client.Watch(ctx, w.records.prefix+w.prefix, clientv3.WithPrefix(),
		clientv3.WithRev(int64(at)+1), clientv3.WithCreatedNotify())
	take := func(r clientv3.WatchResponse) (on, lost bool) {
		switch {
		case r.CompactRevision != 0:
			return false, true
		case r.Err() != nil:
			_ = w.serverLags(ctx, at) // a call renews an expired token; a stream does not
			return false, false
		case r.Created:
			// Otherwise the data are older than the watch's position.
			on = uint64(r.Header.Revision) >= at || w.serverLags(ctx, at)
			return on, !on
		}
		w.merge(r.Events, r.Header.Revision)
		return true, false
	}
	return pump(ctx, w, responses, take, func() { _ = w.records.client.RequestProgress(ctx) })
}

// pump passes etcd's responses to take, until they end, or take returns that it is done or that the position is lost.
// It requests progress while the watch has not reached the revisions that the engine returned.
func pump[T any](ctx context.Context, w *watch, from <-chan T, take func(T) (on, lost bool), ask func()) (lost bool) {
	timer := time.NewTimer(progressDelay)
	defer timer.Stop()
	armed := true
	for {
		select {
		case response, ok := <-from:
			if !ok {
				return false
			}
			if on, lost := take(response); !on {
				return lost
			}
		case <-w.checkProgress:
			if !armed && w.position() < w.records.watches.observed.Load() {
				timer.Reset(progressDelay)
				armed = true
			}
		case <-timer.C:
			armed = false
			if w.position() < w.records.watches.observed.Load() {
				ask() // repeated until the revision is reached
				timer.Reset(progressRetryInterval)
				armed = true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// serverLags reports whether the store has reached the watch's position, so that only the asked server lags.
func (w *watch) serverLags(ctx context.Context, at uint64) bool {
	revision, err := w.records.readRevision(ctx)
	return err == nil && revision >= at
}

func (w *watch) position() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.revision
}

// replace replaces the pending changes by a listing.
func (w *watch) replace(listing store.Listing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pending = make([]store.Change, len(listing.Records))
	for i, r := range listing.Records {
		w.pending[i].Record = r
	}
	w.pendingLimit = max(minPendingLimit, 2*len(w.pending))
	w.wentBack = w.wentBack || listing.Revision < w.revision
	w.resync, w.revision = true, listing.Revision
	w.signal()
}

// merge adds events to the pending changes. Without events, the revision is etcd's progress.
func (w *watch) merge(events []*mvccpb.Event, revision int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(events) == 0 {
		w.revision = max(w.revision, uint64(revision))
	}
	w.pending = slices.Grow(w.pending, len(events))
	for _, event := range events {
		change := store.Change{Record: w.records.record(event.Kv), Deleted: event.Type == clientv3.EventTypeDelete}
		if change.Deleted {
			change.Value = nil
		}
		w.pending = append(w.pending, change)
		w.revision = max(w.revision, change.Modified)
	}
	if len(w.pending) > w.pendingLimit {
		w.pending = newest(w.pending, w.resync)
		w.pendingLimit = max(minPendingLimit, 2*len(w.pending))
	}
	w.signal()
}

// newest reduces changes, in place, to the last one of each key, ordered by key. In a resync a deleted key is left out.
func newest(changes []store.Change, resync bool) []store.Change {
	slices.SortFunc(changes, func(a, b store.Change) int {
		if order := strings.Compare(a.Key, b.Key); order != 0 {
			return order
		}
		return cmp.Compare(a.Modified, b.Modified)
	})
	kept := 0
	for i := range changes {
		c := &changes[i]
		if i+1 < len(changes) && changes[i+1].Key == c.Key || resync && c.Deleted {
			continue
		}
		if kept != i {
			changes[kept] = *c
		}
		kept++
	}
	clear(changes[kept:]) // releases their values
	return changes[:kept:kept]
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

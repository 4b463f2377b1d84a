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

	"github.com/berthd/berth/internal/store"
)

// Pauses of a watch: before it asks etcd how far it is, before it asks again, and
// before it connects again after a fault.
const (
	patience = 5 * time.Millisecond
	again    = 50 * time.Millisecond
	mend     = 50 * time.Millisecond
)

// roomy is how many pending changes are not worth to be looked through for those that were overtaken.
const roomy = 8192

// watch pumps etcd's events into pending changes. A reader that is slow thus costs at most two changes for each changed
// key, beside roomy ones, and nothing in etcd.
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
	pending   []store.Change // as they came, so that a key may have several: newest reduces them
	most      int            // how many may be pending until they are reduced
	resync    bool
	revision  uint64 // what pending leads to
	delivered uint64
}

// Watch is part of store.Engine.
func (e *Engine) Watch(ctx context.Context, prefix string, after uint64) store.Watch {
	inner, cancel := context.WithCancel(ctx)
	w := &watch{
		e: e, ctx: inner, cancel: cancel, prefix: prefix,
		nudge:  make(chan struct{}, 1),
		ready:  make(chan struct{}, 1),
		closed: make(chan struct{}),
		most:   roomy, revision: after, delivered: after,
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
		batch.Changes = newest(w.pending, w.resync)
		w.pending, w.most = nil, roomy
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
	if w.e.server != nil {
		return w.followServer(ctx, at)
	}
	return w.followClient(ctx, at)
}

// followServer takes the events where the server makes them: what stands between for clients would copy each.
func (w *watch) followServer(ctx context.Context, at uint64) (lost bool) {
	stream := w.e.server.Server.Watchable().NewWatchStream()
	defer stream.Close()
	if uint64(stream.Rev()) < at && !w.lags(ctx, at) {
		return true // the data are older than what the watch has seen
	}
	key, end := []byte(w.prefix), []byte(clientv3.GetPrefixRangeEnd(w.prefix))
	if w.prefix == "" {
		key, end = []byte{0}, []byte{} // the server's words for all keys
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

// followClient takes the events from an endpoint elsewhere, which says nothing for ever where it lost its leader,
// unless it is asked to have one.
func (w *watch) followClient(ctx context.Context, at uint64) (lost bool) {
	ctx = clientv3.WithRequireLeader(ctx)
	responses := w.e.client.Watch(ctx, w.e.prefix+w.prefix, clientv3.WithPrefix(), clientv3.WithRev(int64(at)+1),
		clientv3.WithCreatedNotify())
	take := func(r clientv3.WatchResponse) (on, lost bool) {
		switch {
		case r.CompactRevision != 0:
			return false, true
		case r.Err() != nil:
			_ = w.lags(ctx, at) // a call gets another token, if it was that; a stream does not
			return false, false
		case r.Created:
			// Or the data are older than what the watch has seen.
			on = uint64(r.Header.Revision) >= at || w.lags(ctx, at)
			return on, !on
		}
		w.merge(r.Events, r.Header.Revision)
		return true, false
	}
	return pump(ctx, w, responses, take, func() { _ = w.e.client.RequestProgress(ctx) })
}

// pump takes what comes from etcd until that ends, or take says so, or that the place is lost. It asks how far etcd is
// while the watch has not reached what the engine returned.
func pump[T any](ctx context.Context, w *watch, from <-chan T, take func(T) (on, lost bool), ask func()) (lost bool) {
	timer := time.NewTimer(patience)
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
		case <-w.nudge:
			if !armed && w.place() < w.e.observed.Load() {
				timer.Reset(patience)
				armed = true
			}
		case <-timer.C:
			armed = false
			if w.place() < w.e.observed.Load() {
				ask() // again while it does not help
				timer.Reset(again)
				armed = true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// lags says that the data are as new as the place reached after all, and that only the server that was asked has not
// got there yet.
func (w *watch) lags(ctx context.Context, at uint64) bool {
	present, err := reading(ctx, w.e, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return w.e.client.Get(ctx, w.e.prefix+"berth", clientv3.WithCountOnly())
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
	w.pending = make([]store.Change, len(listing.Records))
	for i, r := range listing.Records {
		w.pending[i].Record = r
	}
	w.most = max(roomy, 2*len(w.pending))
	w.resync, w.revision = true, listing.Revision
	w.signal()
}

// merge adds events to what is pending. Without any, the revision is how far etcd is.
func (w *watch) merge(events []*mvccpb.Event, revision int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(events) == 0 {
		w.revision = max(w.revision, uint64(revision))
	}
	w.pending = slices.Grow(w.pending, len(events))
	for _, event := range events {
		change := store.Change{Record: w.e.record(event.Kv), Deleted: event.Type == clientv3.EventTypeDelete}
		if change.Deleted {
			change.Value = nil
		}
		w.pending = append(w.pending, change)
		w.revision = max(w.revision, change.Modified)
	}
	if len(w.pending) > w.most {
		w.pending = newest(w.pending, w.resync)
		w.most = max(roomy, 2*len(w.pending))
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
	clear(changes[kept:]) // their values are of no more use
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

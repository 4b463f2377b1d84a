package consul

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/store"
)

const (
	// longestWait is the wait of a blocking query.
	longestWait = time.Minute
	// maxKeysTogether is the number of changed keys beyond which a watch reads the whole prefix.
	maxKeysTogether = 1000
	// keysPerRead is the number of keys in one transaction of reads, beside the heads.
	keysPerRead = maxOperations - 1
	// maxRounds is how often a watch reads keys again that changed meanwhile.
	maxRounds = 5
	// defaultRecheck is the shortest time between two reads of all records, and recheckShare the part of the time that
	// such reads may take.
	defaultRecheck = 30 * time.Second
	recheckShare   = 50
)

// watch is a position in the log of changes. It holds no record.
type watch struct {
	e      *Engine
	ctx    context.Context //nolint:containedctx // the contract ends a watch with the context of its opening
	prefix string
	closed context.Context //nolint:containedctx // it ends with Close
	end    context.CancelFunc
	once   sync.Once

	isOpened    bool // seen is known, or a resync is needed
	needsResync bool
	position    uint64 // the last delivered revision
	seen        heads  // all their commits were delivered
	index       uint64 // of the last blocking query
	recheckAt   time.Time
	failing     bool // the last step failed
}

// Watch is part of store.Engine.
func (e *Engine) Watch(ctx context.Context, prefix string, after uint64) store.Watch {
	w := &watch{e: e, ctx: ctx, prefix: prefix, position: after, isOpened: after == 0, needsResync: after == 0}
	w.closed, w.end = context.WithCancel(context.Background()) //nolint:gosec // Close calls it
	return w
}

// Close is part of store.Watch.
func (w *watch) Close() { w.once.Do(w.end) }

// Next is part of store.Watch.
func (w *watch) Next(ctx context.Context) (store.Batch, error) {
	if err := store.CheckPrefix(w.prefix); err != nil {
		return store.Batch{}, err
	}
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, other := range []context.Context{w.ctx, w.closed, w.e.lifetime} {
		defer context.AfterFunc(other, cancel)()
	}
	for wait := firstPause; ; {
		if err := w.endReason(ctx); err != nil {
			return store.Batch{}, err
		}
		batch, ok, err := w.step(bounded)
		if ok {
			w.failing = false
			return batch, nil
		}
		if err == nil {
			wait = firstPause
			continue
		}
		if bounded.Err() != nil {
			continue
		}
		if !w.failing && classify(err) != isLimited { // limits are noted elsewhere, less often
			w.failing = true
			w.e.config.Log.Warn("a watch of consul waits for its answer", "error", err)
		}
		_ = pause.For(bounded, wait) // the loop sees its end
		wait = min(2*wait, longestPause)
	}
}

// endReason returns why the watch ended, or nil.
func (w *watch) endReason(ctx context.Context) error {
	if w.closed.Err() != nil || w.e.lifetime.Err() != nil {
		return store.ErrClosed
	}
	if err := w.ctx.Err(); err != nil {
		return err
	}
	return ctx.Err()
}

// step waits for a change or for the time of the next recheck, and returns the batch that follows, if there is one.
func (w *watch) step(ctx context.Context) (store.Batch, bool, error) {
	if !w.isOpened {
		if err := w.open(ctx); err != nil {
			return store.Batch{}, false, err
		}
	}
	if w.needsResync {
		return w.resync(ctx)
	}
	left := time.Until(w.recheckAt)
	if left <= 0 {
		return w.resync(ctx)
	}
	present, index, err := w.e.waitForHeads(ctx, w.index, min(left, longestWait))
	w.index = index
	if err != nil {
		return store.Batch{}, false, err
	}
	if present.revision == w.seen.revision {
		return store.Batch{}, false, nil
	}
	return w.readChanges(ctx, present)
}

// open finds the place of a revision in the log.
func (w *watch) open(ctx context.Context) error {
	seen, known, err := w.e.headsAt(ctx, w.position)
	if err != nil {
		return err
	}
	w.isOpened, w.needsResync, w.seen = true, !known, seen
	w.recheckAt = time.Now().Add(w.e.config.Recheck)
	return nil
}

// readChanges returns the records that changed between the heads seen and the present ones.
func (w *watch) readChanges(ctx context.Context, present heads) (store.Batch, bool, error) {
	keys, known, err := w.e.changedKeys(ctx, w.seen, present, w.prefix)
	if err == nil && known && len(keys) == 0 {
		return w.deliver(nil, keys, present)
	}
	for round := 0; err == nil && known && len(keys) <= maxKeysTogether && round < maxRounds; round++ {
		records, now, readErr := w.e.readKeys(ctx, slices.Sorted(maps.Keys(keys)))
		if readErr != nil {
			return store.Batch{}, false, readErr
		}
		later, knownToo, laterErr := w.e.changedKeys(ctx, present, now, w.prefix)
		if err, known = laterErr, knownToo; err != nil || !known {
			break
		}
		if !overlap(keys, later) { // so the records are as they were at the present heads
			return w.deliver(records, keys, present)
		}
		for key, foreign := range later { // order-free: each by itself
			keys[key] = keys[key] || foreign
		}
		present = now
	}
	if err != nil {
		return store.Batch{}, false, err
	}
	w.needsResync = true
	return store.Batch{}, false, nil
}

// deliver returns the batch of records at heads. It leaves out what was delivered before. A record of another program
// may be older than the position and not delivered yet: foreign has its key.
func (w *watch) deliver(records []store.Record, foreign map[string]bool, at heads) (store.Batch, bool, error) {
	w.seen = at
	if at.revision <= w.position { // the last resync held all of it
		return store.Batch{}, false, nil
	}
	batch := store.Batch{Revision: at.revision}
	for _, r := range records {
		switch {
		case r.Modified > at.revision: // another program wrote it
			w.needsResync = true
			return store.Batch{}, false, nil
		case r.Created == 0:
			batch.Changes = append(batch.Changes, store.Change{
				Record: store.Record{Key: r.Key, Modified: at.revision}, Deleted: true,
			})
		case r.Modified > w.position, foreign[r.Key]:
			batch.Changes = append(batch.Changes, store.Change{Record: r})
		}
	}
	w.position = at.revision
	return batch, true, nil
}

// resync returns the whole prefix.
func (w *watch) resync(ctx context.Context) (store.Batch, bool, error) {
	began := time.Now()
	listing, before, err := w.e.list(ctx, w.prefix)
	if err != nil {
		return store.Batch{}, false, err
	}
	back := wentBack(w.seen, before) || len(w.seen.writers) > 0 && len(before.writers)+len(listing.Records) == 0
	if !back {
		listing.Revision = max(listing.Revision, w.position)
	}
	w.recheckAt = time.Now().Add(max(w.e.config.Recheck, recheckShare*time.Since(began)))
	batch := store.Batch{Revision: listing.Revision, Resync: true, WentBack: back}
	for _, r := range listing.Records {
		batch.Changes = append(batch.Changes, store.Change{Record: r})
	}
	w.position, w.seen, w.needsResync = listing.Revision, before, false
	return batch, true, nil
}

// readKeys returns the records of keys, which are in order, with the heads after the last of them was read. If no
// commit up to these heads wrote one of the keys, the records are as they stood together.
func (l changeLog) readKeys(ctx context.Context, keys []string) ([]store.Record, heads, error) {
	records := make([]store.Record, 0, len(keys))
	var now heads
	for len(keys) > 0 {
		part := keys[:min(len(keys), keysPerRead)]
		keys = keys[len(part):]
		ops := make(api.TxnOps, 0, len(part)+1)
		for _, key := range part {
			ops = append(ops, kvOp(api.KVGetOrEmpty, l.key(key)))
		}
		results, errs, err := l.readTogether(ctx, append(ops, kvOp(api.KVGetTree, l.headKey(""))))
		switch {
		case err != nil:
			return nil, heads{}, err
		case len(errs) > 0:
			return nil, heads{}, fmt.Errorf("read from consul: %s: %w", errs[0].What, store.ErrUnavailable)
		}
		var pairs api.KVPairs
		read := results[:0:0]
		for _, r := range results {
			if strings.HasPrefix(r.KV.Key, l.headKey("")) {
				pairs = append(pairs, r.KV)
			} else {
				read = append(read, r)
			}
		}
		found, err := l.recordsOf(read, len(part))
		if err != nil {
			return nil, heads{}, err
		}
		for i := range found {
			found[i].Key = part[i]
		}
		records = append(records, found...)
		if now, err = l.headsOf(pairs); err != nil {
			return nil, heads{}, err
		}
	}
	return records, now, nil
}

// overlap reports whether two sets have a common key.
func overlap(a, b map[string]bool) bool {
	for key := range b { // order-free: any of them
		if _, both := a[key]; both {
			return true
		}
	}
	return false
}

package consul

import (
	"context"
	"slices"
	"time"

	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/store"
)

const (
	// foreignBytesPerSecond is the rate at which FollowForeign reads values, at most.
	foreignBytesPerSecond = 4 << 20
	// keysPerEntry is the number of foreign records in one entry of the log.
	keysPerEntry = 500
)

// FollowForeign is part of store.ForeignFollower. A blocking query for the prefix ends with each write there, also with
// those of Berth, and returns all records of the prefix. The follower writes an entry for those of other programs into
// the log of changes, and all watches read them as they read the keys of a commit. It logs a key that is gone as well,
// whoever deleted it.
func (e *Engine) FollowForeign(ctx context.Context, prefix string, isForeign func(store.Record) bool) error {
	if err := store.CheckPrefix(prefix); err != nil {
		return err
	}
	f := foreignFollower{e: e, prefix: prefix, isForeign: isForeign, known: map[string]uint64{}}
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.lifetime, cancel)()
	failing := false
	for wait := firstPause; ; {
		size, err := f.step(bounded)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case e.lifetime.Err() != nil:
			return store.ErrClosed
		case err == nil:
			failing, wait = false, firstPause
			_ = pause.For(bounded, max(firstPause, time.Duration(size)*time.Second/foreignBytesPerSecond))
			continue
		case !failing:
			failing = true
			e.config.Log.Warn("the records of other programs in consul are seen late", "error", err)
		}
		_ = pause.For(bounded, wait)
		wait = min(2*wait, longestPause)
	}
}

// foreignFollower is one call of FollowForeign.
type foreignFollower struct {
	e         *Engine
	prefix    string
	isForeign func(store.Record) bool
	index     uint64 // of the last blocking query
	// known are the keys of the last blocking query, with the revisions of the foreign records that are in the log.
	known map[string]uint64
}

// step waits for a change, and writes entries for the foreign records that are new. It returns the size of the values
// that it read.
func (f *foreignFollower) step(ctx context.Context) (size int, err error) {
	bounded, cancel := context.WithTimeout(ctx, longestWait+longestWait/16+readTimeout)
	defer cancel()
	client, number := f.e.client()
	q := f.e.query(bounded)
	q.RequireConsistent, q.WaitIndex, q.WaitTime = false, f.index, longestWait
	pairs, meta, err := client.KV().List(f.e.key(f.prefix), q)
	switch {
	case err != nil:
		f.e.failed(number, err)
		if classify(err) != isLimited {
			f.index = 0
		}
		return 0, err
	case meta.ResultsFilteredByACLs:
		return 0, f.e.denied(errFiltered)
	case meta.LastIndex < f.index: // Consul was restored
		clear(f.known)
		f.index = 0
	default:
		f.index = meta.LastIndex
	}
	found := make(map[string]uint64, len(pairs))
	var keys []string
	for _, p := range pairs {
		size += len(p.Value)
		r := f.e.record(p)
		found[r.Key] = 0
		if !f.isForeign(r) {
			continue
		}
		if found[r.Key] = r.Modified; f.known[r.Key] != r.Modified {
			keys = append(keys, r.Key)
		}
	}
	for key := range f.known { // order-free: a set
		if _, exists := found[key]; !exists {
			keys = append(keys, key)
		}
	}
	for part := range slices.Chunk(keys, keysPerEntry) {
		_, _, err := f.e.lanes.commit(ctx, &operations{keys: part, foreign: true})
		if err != nil {
			return size, err
		}
	}
	f.known = found
	return size, nil
}

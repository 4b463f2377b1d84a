// Package memory is the reference model of a store engine. It implements the contract of store.Engine in the simplest
// way, in the memory of one process. Tests and the simulator run on it, also inside testing/synctest bubbles. The
// conformance suite compares the real engines with it.
//
// The data outlive every handle on them. New creates the data with a first handle. Open returns another handle, such as
// a second server of a fleet has. Close ends a handle; the data end when no handle refers to them.
//
// The model injects the faults of a real engine. Crash loses the results of the calls in flight: some are applied
// immediately, some later, and some never. Compact makes lagging watches lose their position. Fill refuses writes as a
// full disk does, and Brim also applies the first write that it refuses. Restore takes revisions back. Hooks before and
// after a commit delay it, refuse it, or lose its acknowledgement.
package memory

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/berthd/berth/internal/store"
)

// Options configure the data. The zero value is an engine without special limits.
type Options struct {
	// Consul gives the engine the limits and habits of Consul. A commit has at most 126 operations, and 484 KiB of them
	// in base64. Keys must be UTF-8. Watches return the whole prefix: every batch with changes is a resync. A write of
	// the value that the record has already is skipped: the record keeps its revision, and no watch wakes.
	Consul bool
	// History is the number of changes kept for watches that lag; 0 means 100,000. A watch that needs an older change
	// gets a resync.
	History int
	// Random decides the results of calls in flight at a Crash; nil means a fixed seed. The engine uses it under its
	// own lock.
	Random *rand.Rand
	// Hooks are the hooks of the first handle.
	Hooks Hooks
	// Observe, unless nil, is called for every revision of all handles, in order. Unlike a watch it misses no
	// intermediate version. After a Restore it gets every record, with whole set. It runs under the engine's lock and
	// must not call the engine.
	Observe func(changes []store.Change, revision uint64, whole bool)
}

// Hooks inject faults into commits. They run without the engine's lock, on the goroutine of the call, and may block.
type Hooks struct {
	// Before runs after a commit was checked and before it is applied. Its error is returned to the caller, and nothing
	// is written.
	Before func(ctx context.Context, groups []store.Group) error
	// After runs after a commit was applied. Its error is returned to the caller in place of the result:
	// store.ErrUnknown loses the acknowledgement.
	After func(ctx context.Context, groups []store.Group, result store.Result) error
}

// PlainLimits are the limits of an engine without Options.Consul.
func PlainLimits() store.Limits { return store.Limits{Operations: 16384, Bytes: 4 << 20} }

// ConsulLimits are the limits of an engine with Options.Consul, those of package consul. Consul takes 128 operations
// and 512 KiB. The driver adds two operations. A value is base64, four bytes for three, inside JSON; 224 bytes for each
// operation are set aside for the JSON and for the prefix of the keys.
func ConsulLimits() store.Limits {
	const request, envelope, operations, added = 512 << 10, 224, 128, 2
	return store.Limits{Operations: operations - added, Bytes: (request - operations*envelope) / 4 * 3}
}

// Engine is a handle on data in memory. It is a store.Engine.
type Engine struct {
	d      *data
	hooks  Hooks
	closed chan struct{}
	once   sync.Once

	// floor is, with Options.Consul, the highest revision that the handle has returned since the last of so many
	// restores. The lock of the data guards both.
	floor    uint64
	restores int
}

// data is shared by all handles. mu guards all of it but the constant fields above it.
type data struct {
	consul  bool
	history int
	limits  store.Limits
	observe func([]store.Change, uint64, bool)

	mu       sync.Mutex
	random   *rand.Rand
	revision uint64
	records  map[string]store.Record
	keys     []string // the sorted keys of records; nil when they have to be sorted again

	events     []event           // the events of the revisions above compacted, in their order
	tombstones map[string]uint64 // with consul, the revisions above compacted of deletions
	compacted  uint64
	restores   int           // a watch that has seen fewer restores gets a resync
	changed    chan struct{} // closed and replaced whenever watches and callers have to read again

	full             bool
	reachesQuotaNext bool // the next write reaches the quota
	down             bool
	crashes          int
}

// event is the write or deletion of a key at a revision. The present value of the key is in the records.
type event struct {
	revision uint64
	key      string
}

// New returns the first handle on new, empty data.
func New(options Options) *Engine {
	d := &data{
		consul:     options.Consul,
		history:    options.History,
		observe:    options.Observe,
		limits:     PlainLimits(),
		random:     options.Random,
		revision:   1,
		records:    make(map[string]store.Record),
		tombstones: make(map[string]uint64),
		changed:    make(chan struct{}),
	}
	if d.consul {
		d.limits = ConsulLimits()
	}
	if d.history == 0 {
		d.history = 100_000
	}
	if d.random == nil {
		d.random = rand.New(rand.NewPCG(1, 2))
	}
	return &Engine{d: d, hooks: options.Hooks, closed: make(chan struct{})}
}

// Open returns another handle on the same data, with hooks of its own.
func (e *Engine) Open(hooks Hooks) *Engine {
	return &Engine{d: e.d, hooks: hooks, closed: make(chan struct{})}
}

// Limits is part of store.Engine.
func (e *Engine) Limits() store.Limits { return e.d.limits }

// Close is part of store.Engine. It closes this handle; the data stay.
func (e *Engine) Close() error {
	e.once.Do(func() { close(e.closed) })
	return nil
}

// Read is part of store.Engine.
func (e *Engine) Read(ctx context.Context, key string) (store.Record, error) {
	if _, err := e.lockWhenUp(ctx); err != nil {
		return store.Record{}, err
	}
	defer e.d.mu.Unlock()
	record, ok := e.d.records[key]
	if !ok {
		return store.Record{}, fmt.Errorf("key %q: %w", key, store.ErrNotFound)
	}
	return record, nil
}

// List is part of store.Engine.
func (e *Engine) List(ctx context.Context, prefix string) (store.Listing, error) {
	if err := store.CheckPrefix(prefix); err != nil {
		return store.Listing{}, err
	}
	if _, err := e.lockWhenUp(ctx); err != nil {
		return store.Listing{}, err
	}
	defer e.d.mu.Unlock()
	return store.Listing{Records: e.d.list(prefix), Revision: e.raiseFloor(e.d.revisionOf(prefix))}, nil
}

// Revision is part of store.Engine.
func (e *Engine) Revision(ctx context.Context, prefix string) (uint64, error) {
	if err := store.CheckPrefix(prefix); err != nil {
		return 0, err
	}
	if _, err := e.lockWhenUp(ctx); err != nil {
		return 0, err
	}
	defer e.d.mu.Unlock()
	return e.raiseFloor(e.d.revisionOf(prefix)), nil
}

// raiseFloor returns the revision that the handle returns for a true one: never a lower one than before, since other
// prefixes and dropped deletions would take the revisions of a reader back. The watches of the handle owe progress up
// to it. The lock is held.
func (e *Engine) raiseFloor(revision uint64) uint64 {
	if !e.d.consul {
		return revision
	}
	if e.restores != e.d.restores {
		e.floor, e.restores = 0, e.d.restores
	}
	if revision > e.floor {
		e.floor = revision
		e.d.wakeWaiters()
	}
	return e.floor
}

// lockWhenUp waits until the engine is up, takes the lock, and returns the number of crashes so far.
func (e *Engine) lockWhenUp(ctx context.Context) (int, error) {
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		select {
		case <-e.closed:
			return 0, store.ErrClosed
		default:
		}
		e.d.mu.Lock()
		if !e.d.down {
			return e.d.crashes, nil
		}
		changed := e.d.changed
		e.d.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-e.closed:
		case <-changed:
		}
	}
}

// list returns the records under a prefix in the order of their keys. The lock is held.
func (d *data) list(prefix string) []store.Record {
	if d.keys == nil {
		d.keys = slices.Sorted(maps.Keys(d.records))
	}
	from, _ := slices.BinarySearch(d.keys, prefix)
	var records []store.Record
	for _, key := range d.keys[from:] {
		if !strings.HasPrefix(key, prefix) {
			break
		}
		records = append(records, d.records[key])
	}
	return records
}

// revisionOf returns the revision of a prefix. The lock is held.
func (d *data) revisionOf(prefix string) uint64 {
	if !d.consul || prefix == "" {
		return d.revision
	}
	last := uint64(0)
	for _, record := range d.list(prefix) {
		last = max(last, record.Modified)
	}
	for key, deleted := range d.tombstones { // order-free: a maximum
		if strings.HasPrefix(key, prefix) {
			last = max(last, deleted)
		}
	}
	if last == 0 {
		return d.revision
	}
	return last
}

// wakeWaiters wakes all goroutines that wait for a change. The lock is held.
func (d *data) wakeWaiters() {
	close(d.changed)
	d.changed = make(chan struct{})
}

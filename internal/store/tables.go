// Package store keeps the state of a domain: durably in an engine, and in memory in
// tables that every decision reads.
//
// A write takes three steps. A writer commits groups of compared operations to the Engine. The one watch of the Tables
// delivers them. The Tables publish a new Snapshot. Nothing on a decision path reads the engine. A record has one
// writer (see the record types in package cluster), and every write of the control plane compares the leader's epoch
// (P1.4).
//
// # Tables
//
// A table is a typed copy-on-write B-tree (github.com/tidwall/btree), whose Copy is O(1). The attempts of tasks, joined
// from plan, desired, observed and outcome records, are in two trees: by task, and by node and task. Iteration is
// ordered, so no decision depends on the order of a map. There are no generic indexes: a new look-up is a new tree. The
// list in kinds.go holds every kind of records; a new one is an entry there.
//
// # Shared compares
//
// Compares that several groups of a commit share are evaluated once, in etcd's outer transaction; etcd reads the whole
// value of each compared record, and a plan record has 140 kB. If a shared compare fails, nothing was written, and the
// call is sent again with the compares in their groups. A refused group is sent again in groups of 16, and what of
// these is refused unit by unit.
//
// # Size
//
// Tables, snapshot and writer share the unexported trees. The accessors of snapshots are most of the package: one group
// for each kind of object, embedded in Snapshot, so that callers have one type. A Prefix has a method for each key.
package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/berthd/berth/internal/clause"
)

// Tables hold the whole state of a store in memory, fed by one watch over its prefix (P2.2). Reading is safe at
// any time from any goroutine; Run must be called once.
type Tables struct {
	engine Engine
	prefix Prefix
	logger *slog.Logger

	// ignoreForeign treats foreign records of tasks as absent (clause.Foreign is off).
	ignoreForeign bool

	snapshot atomic.Pointer[Snapshot]
	synced   chan struct{}

	// delivered is the newest snapshot whose changes all followers have received.
	delivered atomic.Pointer[Snapshot]

	mu        sync.Mutex
	changed   chan struct{} // unless nil, closed with the next snapshot
	waiters   revisionWaiters
	followers map[*Follower]bool
	nodes     map[string]map[*NodeFollower]bool

	pulses pulseTable
}

// TablesConfig configures NewTables.
type TablesConfig struct {
	Engine Engine
	Prefix Prefix // default DefaultPrefix
	Logger *slog.Logger
	// Without switches clauses off, in tests only.
	Without clause.Set
}

// NewTables returns empty tables; Run fills them.
func NewTables(c TablesConfig) *Tables {
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	t := &Tables{
		engine:        c.Engine,
		prefix:        c.Prefix,
		logger:        c.Logger,
		ignoreForeign: c.Without.Off(clause.Foreign),
		synced:        make(chan struct{}),
		followers:     map[*Follower]bool{},
		nodes:         map[string]map[*NodeFollower]bool{},
	}
	t.snapshot.Store(newSnapshot())
	t.delivered.Store(t.Snapshot())
	return t
}

// Run follows the store until the context or the engine ends. It returns the context's error or ErrClosed. A record of
// a newer build ends Run with a NewerError before a snapshot without that record is published. A server that decides
// without the record would undo its effect.
func (t *Tables) Run(ctx context.Context) error {
	watch := t.engine.Watch(ctx, string(t.prefix), 0)
	defer watch.Close()
	var newer error
	s := newState(func(key string, err error) {
		if errors.As(err, new(*NewerError)) {
			newer = fmt.Errorf("%s: %w", strings.TrimPrefix(key, string(t.prefix)), err)
			return
		}
		t.logger.Error("a record cannot be read and is left alone", "key", key, "error", err)
	})
	s.ignoreForeign = t.ignoreForeign
	first := true
	for {
		b, err := watch.Next(ctx)
		if err != nil {
			return fmt.Errorf("watch the store: %w", err)
		}
		if b.WentBack {
			t.logger.Error("the store went back to an earlier state: acknowledged writes may be missing",
				"from_revision", s.revision, "to_revision", b.Revision)
		}
		if s.apply(b, string(t.prefix)); newer != nil {
			return newer
		}
		t.publish(s)
		if first {
			first = false
			close(t.synced)
		}
	}
}

// publish makes the state the newest snapshot, passes its changes to all followers, and wakes the waiters last. A
// waiter that then takes from a follower therefore finds every change up to its revision.
func (t *Tables) publish(s *state) {
	snap := s.Snapshot.publish()
	d := s.delta
	defer d.clear()

	t.mu.Lock()
	defer t.mu.Unlock()
	t.snapshot.Store(snap)
	for f := range t.followers { // order-free: followers are independent
		f.add(d)
	}
	for i := range d.attempts {
		for f := range t.nodes[d.attempts[i].node] { // order-free
			f.add(d.attempts[i].key)
		}
	}
	for node := range d.nodes { // order-free
		for f := range t.nodes[node] { // order-free
			signal(f.wake)
		}
	}
	t.delivered.Store(snap)
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
	t.waiters.wakeUpTo(snap.Revision())
}

// Synced is closed once the tables have held the whole store.
func (t *Tables) Synced() <-chan struct{} { return t.synced }

// Snapshot returns the newest state.
func (t *Tables) Snapshot() *Snapshot { return t.snapshot.Load() }

// Prefix returns the prefix of the store's keys.
func (t *Tables) Prefix() Prefix { return t.prefix }

// Changed returns a channel that is closed once the tables hold a revision above the given one, which may be now. The
// next snapshot closes the channel in any case, also after the store went back to an earlier revision.
func (t *Tables) Changed(after uint64) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.Snapshot().Revision() > after {
		done := make(chan struct{})
		close(done)
		return done
	}
	if t.changed == nil {
		t.changed = make(chan struct{})
	}
	return t.changed
}

// WaitFor returns a snapshot once the tables have reached the revision. By then every follower has received the changes
// up to it. WaitFor returns the context's error. A waiter for a later revision sleeps until the tables reach it.
func (t *Tables) WaitFor(ctx context.Context, revision uint64) (*Snapshot, error) {
	for {
		if s := t.delivered.Load(); s.Revision() >= revision {
			return s, nil
		}
		t.mu.Lock()
		if t.delivered.Load().Revision() >= revision {
			t.mu.Unlock()
			continue
		}
		w := t.waiters.join(revision)
		t.mu.Unlock()
		select {
		case <-ctx.Done():
			t.mu.Lock()
			t.waiters.leave(w)
			t.mu.Unlock()
			return nil, ctx.Err()
		case <-w.reached:
		}
	}
}

// Settled returns a snapshot that holds everything that the engine holds now. It waits for the revision of a
// linearizable read (P2.3).
func (t *Tables) Settled(ctx context.Context) (*Snapshot, error) {
	revision, err := t.engine.Revision(ctx, string(t.prefix))
	if err != nil {
		return nil, fmt.Errorf("read the store's revision: %w", err)
	}
	return t.WaitFor(ctx, revision)
}

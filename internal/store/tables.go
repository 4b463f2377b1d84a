// Package store keeps the state of a domain: durably in an engine, and in memory in
// tables that every decision reads.
//
// The way of a write is: a writer commits groups of compared operations to the Engine; the
// one watch of the Tables delivers them; the tables publish a new Snapshot. Nothing on a decision path reads
// the engine. A record has one writer (see the nouns in package cluster), and every
// write of the control plane compares the leader's epoch (P1.4).
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
	unpin  bool // clause.Foreign is off

	snapshot atomic.Pointer[Snapshot]
	synced   chan struct{}

	// told is the newest snapshot of which all who follow know.
	told atomic.Pointer[Snapshot]

	mu        sync.Mutex
	changed   chan struct{} // unless nil, closed with the next snapshot
	waiting   waiting
	followers map[*Follower]bool
	nodes     map[string]map[*NodeFollower]bool

	soft soft
}

// TablesConfig is what NewTables needs.
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
		engine:    c.Engine,
		prefix:    c.Prefix,
		logger:    c.Logger,
		unpin:     c.Without.Off(clause.Foreign),
		synced:    make(chan struct{}),
		followers: map[*Follower]bool{},
		nodes:     map[string]map[*NodeFollower]bool{},
	}
	t.snapshot.Store(newSnapshot())
	t.told.Store(t.Snapshot())
	return t
}

// Run follows the store until the context or the engine ends. It returns the context's error or ErrClosed. A record of
// a newer build ends it with a NewerError, before anybody sees tables that lack it: whoever decides without it undoes
// what it asks for.
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
	s.unpin = t.unpin
	first := true
	for {
		b, err := watch.Next(ctx)
		if err != nil {
			return fmt.Errorf("watch the store: %w", err)
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

// publish hands the state out as a new snapshot and tells all who follow. Who waited for a revision and then takes
// from a follower finds all of it: they are woken last.
func (t *Tables) publish(s *state) {
	snap := s.Snapshot.publish()
	d := s.delta
	defer d.clear()

	t.mu.Lock()
	defer t.mu.Unlock()
	t.snapshot.Store(snap)
	for f := range t.followers { // order-free: each follower is told by itself
		f.add(d)
	}
	for i := range d.attempts {
		for f := range t.nodes[d.attempts[i].node] { // order-free
			f.add(d.attempts[i].key)
		}
	}
	t.told.Store(snap)
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
	t.waiting.reached(snap.Revision())
}

// Synced is closed once the tables have held the whole store.
func (t *Tables) Synced() <-chan struct{} { return t.synced }

// Snapshot returns the newest state.
func (t *Tables) Snapshot() *Snapshot { return t.snapshot.Load() }

// Prefix returns what the keys of the store begin with.
func (t *Tables) Prefix() Prefix { return t.prefix }

// Changed returns a channel that is closed once the tables hold a revision above the given one, which may be now. It is
// closed with the next snapshot in any case, also where the store went back.
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

// WaitFor returns a snapshot once the tables have reached the revision; every follower has collected by then what
// led to it. It returns the context's error. Who waits for a later revision than others is not woken before it comes.
func (t *Tables) WaitFor(ctx context.Context, revision uint64) (*Snapshot, error) {
	for {
		if s := t.told.Load(); s.Revision() >= revision {
			return s, nil
		}
		t.mu.Lock()
		if t.told.Load().Revision() >= revision {
			t.mu.Unlock()
			continue
		}
		w := t.waiting.join(revision)
		t.mu.Unlock()
		select {
		case <-ctx.Done():
			t.mu.Lock()
			t.waiting.leave(w)
			t.mu.Unlock()
			return nil, ctx.Err()
		case <-w.come:
		}
	}
}

// Settled waits until the tables hold what the engine holds now: it takes the revision of a linearizable
// read and waits for it (P2.3).
func (t *Tables) Settled(ctx context.Context) (*Snapshot, error) {
	l, err := t.engine.List(ctx, string(t.prefix)+"leader/")
	if err != nil {
		return nil, fmt.Errorf("read the store's revision: %w", err)
	}
	return t.WaitFor(ctx, l.Revision)
}

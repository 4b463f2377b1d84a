package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/berthd/berth/internal/store"
)

// lease is the data of a session: its keys and the timer that ends it.
type lease struct {
	ttl   time.Duration
	keys  map[string]struct{}
	timer *time.Timer
}

// restartTimer begins the lease's time again. It ends halfway between the bounds that the contract allows.
func (l *lease) restartTimer() { l.timer.Reset(l.ttl + l.ttl/2) }

// session is a handle on a lease.
type session struct {
	e  *Engine
	id store.SessionID
}

// OpenSession is part of store.Engine.
func (e *Engine) OpenSession(ctx context.Context, ttl time.Duration) (store.Session, error) {
	if ttl <= 0 {
		return nil, fmt.Errorf("a session of %v: %w", ttl, store.ErrInvalid)
	}
	if _, err := e.lockWhenUp(ctx); err != nil {
		return nil, err
	}
	defer e.d.mu.Unlock()
	if e.d.full {
		return nil, store.ErrNoSpace
	}
	var id store.SessionID
	for taken := true; taken; _, taken = e.d.sessions[id] { // a restore may have brought back any id
		e.d.opened++
		id = store.SessionID(fmt.Sprintf("session-%d", e.d.opened))
	}
	e.d.startLease(id, ttl)
	return &session{e: e, id: id}, nil
}

// startLease begins a lease. The lock is held.
func (d *data) startLease(id store.SessionID, ttl time.Duration) {
	l := &lease{ttl: ttl, keys: make(map[string]struct{})}
	d.sessions[id] = l
	l.timer = time.AfterFunc(ttl+ttl/2, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.sessions[id] == l && !d.down { // Restart begins the time of a lease again
			d.end(id)
		}
	})
}

// end deletes a lease and its records, all at one revision. The lock is held.
func (d *data) end(id store.SessionID) {
	l, live := d.sessions[id]
	if !live {
		return
	}
	l.timer.Stop()
	at := d.revision + 1
	for _, key := range slices.Sorted(maps.Keys(l.keys)) {
		d.write(at, store.Op{Key: key, Delete: true})
	}
	delete(d.sessions, id)
	d.finishRevision(at)
}

// bindKey binds a key to a lease, or to none. The lock is held.
func (d *data) bindKey(key string, id store.SessionID) {
	if l, isBound := d.sessions[d.boundTo[key]]; isBound {
		delete(l.keys, key)
	}
	delete(d.boundTo, key)
	if l, live := d.sessions[id]; live {
		l.keys[key] = struct{}{}
		d.boundTo[key] = id
	}
}

// ID is part of store.Session.
func (s *session) ID() store.SessionID { return s.id }

// Renew is part of store.Session.
func (s *session) Renew(ctx context.Context) error {
	if _, err := s.e.lockWhenUp(ctx); err != nil {
		return err
	}
	defer s.e.d.mu.Unlock()
	l, live := s.e.d.sessions[s.id]
	if !live {
		return fmt.Errorf("session %s: %w", s.id, store.ErrSessionExpired)
	}
	l.restartTimer()
	return nil
}

// End is part of store.Session.
func (s *session) End(ctx context.Context) error {
	if _, err := s.e.lockWhenUp(ctx); err != nil {
		return err
	}
	defer s.e.d.mu.Unlock()
	s.e.d.end(s.id)
	return nil
}

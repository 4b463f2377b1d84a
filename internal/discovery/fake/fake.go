// Package fake is a system for service discovery in memory, for tests. It can fail as a real one does: it refuses
// calls, hangs, answers late, loses registrations, and loses answers.
package fake

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/internal/discovery"
)

// Entry is a registration in a System.
type Entry struct {
	Owner        string
	Registration discovery.Registration
	State        discovery.State
	// Reports counts the reports since it was registered.
	Reports int
}

// System holds the registrations of all owners. The zero System has none. Its methods may be called concurrently.
type System struct {
	mu      sync.Mutex
	entries map[string]Entry
	calls   []string
	before  func(ctx context.Context, call string) error
	after   func(call string) error
	changed chan struct{} // closed at the next change
}

// ErrDown is the error of calls after Fail without another error.
var ErrDown = errors.New("the system does not answer")

// Before sets a function that runs before each call takes effect. If it returns an error, the call fails with it and
// has no effect. The call is the name of the method and the ID, such as "register x". Nil removes the function.
func (s *System) Before(f func(ctx context.Context, call string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

// After sets a function that runs after each call took effect. If it returns an error, the answer is lost: the call
// fails with the error. Nil removes the function.
func (s *System) After(f func(call string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = f
}

// Fail makes all calls fail from now on.
func (s *System) Fail() {
	s.Before(func(context.Context, string) error { return ErrDown })
}

// Hang makes all calls block until their context ends.
func (s *System) Hang() {
	s.Before(func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return ctx.Err()
	})
}

// Recover ends Fail, Hang, Before and After.
func (s *System) Recover() {
	s.Before(nil)
	s.After(nil)
}

// Lose removes the registrations of all owners, as a system does that restarts without its data.
func (s *System) Lose() { s.change(func() { clear(s.entries) }) }

// Put writes an entry without a driver, as another program does.
func (s *System) Put(e Entry) {
	s.change(func() {
		if s.entries == nil {
			s.entries = map[string]Entry{}
		}
		s.entries[e.Registration.ID] = e
	})
}

// Entries returns the registrations by ID.
func (s *System) Entries() map[string]Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.entries)
}

// Calls returns the calls so far, in the order in which they took effect or failed.
func (s *System) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Changed returns a channel that is closed at the next change of an entry.
func (s *System) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// change runs f with the lock, and wakes those who wait for a change.
func (s *System) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.noteChange()
}

// noteChange wakes those who wait for a change. The caller has the lock.
func (s *System) noteChange() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// do runs one call.
func (s *System) do(ctx context.Context, call string, effect func() error) error {
	s.mu.Lock()
	before, after := s.before, s.after
	s.mu.Unlock()
	err := ctx.Err()
	if err == nil && before != nil {
		err = before(ctx, call)
	}
	s.mu.Lock()
	s.calls = append(s.calls, call)
	if err == nil {
		err = effect()
	}
	s.mu.Unlock()
	if err == nil && after != nil {
		err = after(call)
	}
	return err
}

// Driver is a discovery.Driver of one owner.
type Driver struct {
	system *System
	owner  string
}

var _ discovery.Driver = (*Driver)(nil)

// reportInterval is the interval of reports.
const reportInterval = 10 * time.Second

// New returns a driver of an owner.
func New(s *System, owner string) *Driver { return &Driver{s, owner} }

// Name is part of discovery.Driver.
func (*Driver) Name() string { return "fake" }

// ReportInterval is part of discovery.Driver.
func (*Driver) ReportInterval() time.Duration { return reportInterval }

// Probe is part of discovery.Driver.
func (d *Driver) Probe(ctx context.Context) (string, error) {
	return "1", d.system.do(ctx, "probe", func() error { return nil })
}

// List is part of discovery.Driver.
func (d *Driver) List(ctx context.Context) (held []discovery.Held, err error) {
	err = d.system.do(ctx, "list", func() error {
		for id, e := range d.system.entries { // order-free: sorted below
			if e.Owner == d.owner {
				held = append(held, discovery.Held{ID: id, Digest: e.Registration.Digest()})
			}
		}
		return nil
	})
	slices.SortFunc(held, func(a, b discovery.Held) int { return strings.Compare(a.ID, b.ID) })
	return held, err
}

// Register is part of discovery.Driver.
func (d *Driver) Register(ctx context.Context, r *discovery.Registration, state discovery.State) error {
	s := d.system
	return s.do(ctx, "register "+r.ID, func() error {
		if e, ok := s.entries[r.ID]; ok && e.Owner != d.owner {
			return discovery.ErrForeign
		}
		if s.entries == nil {
			s.entries = map[string]Entry{}
		}
		s.entries[r.ID] = Entry{Owner: d.owner, Registration: *r, State: state}
		s.noteChange()
		return nil
	})
}

// Report is part of discovery.Driver.
func (d *Driver) Report(ctx context.Context, id string, state discovery.State) error {
	s := d.system
	return s.do(ctx, "report "+id, func() error {
		e, ok := s.entries[id]
		switch {
		case !ok:
			return discovery.ErrNotRegistered
		case e.Owner != d.owner:
			return discovery.ErrForeign
		}
		e.State = state
		e.Reports++
		s.entries[id] = e
		s.noteChange()
		return nil
	})
}

// Deregister is part of discovery.Driver.
func (d *Driver) Deregister(ctx context.Context, id string) error {
	s := d.system
	return s.do(ctx, "deregister "+id, func() error {
		if e, ok := s.entries[id]; ok && e.Owner != d.owner {
			return discovery.ErrForeign
		}
		delete(s.entries, id)
		s.noteChange()
		return nil
	})
}

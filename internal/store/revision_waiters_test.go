package store

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func isWoken(w *waiterGroup) bool {
	select {
	case <-w.reached:
		return true
	default:
		return false
	}
}

// A revision wakes the waiters that it reaches, and waiters that left are removed.
func TestWaitingWakesWhoIsReached(t *testing.T) {
	var w revisionWaiters
	three, five, same := w.join(3), w.join(5), w.join(5)
	w.wakeUpTo(2)
	if isWoken(three) {
		t.Error("revision 2 wakes who waits for 3")
	}
	w.wakeUpTo(4)
	if !isWoken(three) || isWoken(five) {
		t.Errorf("revision 4: got 3 woken %v, 5 woken %v, want only 3", isWoken(three), isWoken(five))
	}
	again := w.join(3) // the store went back
	w.leave(three)
	if w.revisions.Len() != 2 {
		t.Errorf("revisions: got %d, want the new 3 and 5: the caller that left had waited before", w.revisions.Len())
	}
	w.leave(again)
	w.leave(five)
	if w.revisions.Len() != 1 {
		t.Errorf("revisions: got %d, want 5, for which another waits", w.revisions.Len())
	}
	w.leave(same)
	if w.revisions.Len() != 0 {
		t.Errorf("revisions: got %d, want none", w.revisions.Len())
	}
}

func TestWaitForEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tables := NewTables(TablesConfig{})
		s := newState(nil)
		ctx, cancel := context.WithCancel(t.Context())
		given, reached := make(chan error, 1), make(chan uint64, 1)
		go func() {
			_, err := tables.WaitFor(ctx, 9)
			given <- err
		}()
		go func() {
			snap, _ := tables.WaitFor(t.Context(), 4)
			reached <- snap.Revision()
		}()
		synctest.Wait()
		for _, revision := range []uint64{3, 5} {
			s.revision = revision
			tables.publish(s)
		}
		if got := <-reached; got != 5 {
			t.Errorf("who waits for 4: got revision %d, want 5", got)
		}
		cancel()
		if err := <-given; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the context's error", err)
		}
		if n := tables.waiters.revisions.Len(); n != 0 {
			t.Errorf("%d revisions have no waiter", n)
		}
	})
}

// Changed also reports a store that went back.
func TestChangedIsClosedWhenTheStoreGoesBack(t *testing.T) {
	tables := NewTables(TablesConfig{})
	s := newState(nil)
	s.revision = 7
	tables.publish(s)
	changed := tables.Changed(7)
	s.revision = 3
	tables.publish(s)
	select {
	case <-changed:
	default:
		t.Error("the channel is open")
	}
}

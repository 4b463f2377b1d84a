package registry

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/egress"
)

func TestRetryAfterIsSecondsOrADate(t *testing.T) {
	now := time.Unix(1e9, 0).UTC()
	for text, want := range map[string]time.Duration{
		"0": 0, "7": 7 * time.Second, now.Add(time.Minute).Format(http.TimeFormat): time.Minute,
		now.Add(-time.Minute).Format(http.TimeFormat): 0,
	} {
		if got, ok := parseRetryAfter(text, now); !ok || got != want {
			t.Errorf("%q: got %v %v, want %v", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "-1", "soon", "99999999999999"} {
		if got, ok := parseRetryAfter(text, now); ok {
			t.Errorf("%q: got %v, want none", text, got)
		}
	}
}

// One registry never has all slots, and a waiting pull gets the slot that another gives back.
func TestSlotsKeepOneForOtherRegistries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSlots(3)
		take := func(ctx context.Context, host string, want error) {
			t.Helper()
			if err := s.Take(ctx, host, nil); !errors.Is(err, want) {
				t.Fatalf("take for %s: got error %v, want %v", host, err, want)
			}
		}
		ended, end := context.WithCancel(t.Context())
		end()
		take(t.Context(), "a", nil)
		take(t.Context(), "a", nil)
		take(ended, "a", context.Canceled) // it waits, although a slot is free
		take(t.Context(), "b", nil)
		take(ended, "c", context.Canceled)
		granted := make(chan error, 1)
		go func() { granted <- s.Take(t.Context(), "c", nil) }()
		synctest.Wait()
		s.Give("b")
		if err := <-granted; err != nil {
			t.Errorf("a waiting pull: got error %v", err)
		}
	})
}

// Failures in a row suspend a registry for longer, and a success clears them once the suspension is over.
func TestSuspensionsGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(time.Minute, egress.Policy{})
		delay := func(failures int) time.Duration { return time.Second << failures }
		suspend := func(wanted, want time.Duration) {
			t.Helper()
			if got := c.Suspend("a", "busy", wanted, delay); got != want {
				t.Errorf("suspended for %v, want %v", got, want)
			}
		}
		suspend(0, time.Second)
		suspend(0, time.Second) // the same failure, seen by another pull
		time.Sleep(time.Second)
		suspend(0, 2*time.Second)
		suspend(time.Minute, time.Minute)
		if left, why := c.SuspendedFor("a"); left != time.Minute || why != "busy" {
			t.Errorf("suspended for %v because %q, want a minute, busy", left, why)
		}
		c.ClearFailures("a") // a pull that began before
		if left, _ := c.SuspendedFor("a"); left != time.Minute {
			t.Errorf("suspended for %v after an earlier answer, want a minute", left)
		}
		time.Sleep(time.Minute)
		c.ClearFailures("a")
		suspend(0, time.Second)
	})
}

package pause

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestUntilEndsWithTheFirstEvent(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	closed := make(chan struct{})
	close(closed)
	for _, c := range []struct {
		name  string
		ctx   context.Context
		wake  chan struct{}
		d     time.Duration
		took  time.Duration
		woken bool
		err   error
	}{
		{"the duration", context.Background(), nil, time.Hour, time.Hour, false, nil},
		{"the channel", context.Background(), closed, time.Hour, 0, true, nil},
		{"the context", ended, nil, time.Hour, 0, false, context.Canceled},
		{"no duration", context.Background(), nil, 0, 0, false, nil},
		{"no duration and no context", ended, nil, -1, 0, false, context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				woken, err := Until(c.ctx, c.wake, c.d)
				if woken != c.woken || !errors.Is(err, c.err) || time.Since(began) != c.took {
					t.Errorf("got %v, %v after %v, want %v, %v after %v", woken, err, time.Since(began), c.woken,
						c.err, c.took)
				}
			})
		})
	}
}

// The waiting time doubles up to the longest one, and begins again after a reset. Jitter takes at most half of it.
func TestBackoffDoubles(t *testing.T) {
	t.Parallel()
	jitter := 0.0
	b := &Backoff{Shortest: time.Second, Longest: 5 * time.Second, Random: func() float64 { return jitter }}
	for i, seconds := range []float64{0.5, 1, 2, 2.5, 2.5} {
		if got := b.Next(); got.Seconds() != seconds {
			t.Errorf("time %d without jitter: got %v, want %v s", i, got, seconds)
		}
	}
	b.Reset()
	jitter = 1
	if got := b.Next(); got != time.Second {
		t.Errorf("after a reset with all jitter: got %v, want 1s", got)
	}
	b.SetFailures(20)
	if got := b.Next(); got != 5*time.Second {
		t.Errorf("after 20 failures: got %v, want the longest", got)
	}
	for range 100 { // the number of failures does not overflow
		if got := b.Next(); got != 5*time.Second {
			t.Fatalf("later: got %v, want the longest", got)
		}
	}
	b = &Backoff{Shortest: time.Second, Longest: 5 * time.Second}
	if first, second := b.Next(), b.Next(); first != time.Second || second != 2*time.Second {
		t.Errorf("without a random source: got %v and %v, want 1s and 2s", first, second)
	}
}

func TestBackoffWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Backoff{Shortest: time.Second, Longest: time.Minute}
		began := time.Now()
		if err := b.Wait(t.Context()); err != nil || time.Since(began) != time.Second {
			t.Errorf("got %v after %v, want nil after 1s", err, time.Since(began))
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if b.Wait(ended) == nil {
			t.Error("a wait succeeded without its context")
		}
		if other := (*Backoff)(nil).OrElse(b); other != b {
			t.Error("OrElse of nil does not return the other backoff")
		}
	})
}

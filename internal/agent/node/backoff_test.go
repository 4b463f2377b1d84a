package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// The waiting time doubles up to the longest one, and begins again after a reset. Jitter takes at most half of it.
func TestBackoffDoubles(t *testing.T) {
	t.Parallel()
	jitter := 0.0
	n := &Node{Random: func() float64 { return jitter }}
	b := n.NewBackoff(time.Second, 5*time.Second)
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
}

func TestBackoffWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{Random: func() float64 { return 1 }}
		b := n.NewBackoff(time.Second, time.Minute)
		began := time.Now()
		if !b.Wait(t.Context()) || time.Since(began) != time.Second {
			t.Errorf("waited %v, want 1s", time.Since(began))
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if b.Wait(ended) {
			t.Error("a wait succeeded without its context")
		}
		if other := (*Backoff)(nil).OrElse(b); other != b {
			t.Error("no backoff stands for another")
		}
	})
}

// A nudge never blocks, and two of them count once.
func TestNudge(t *testing.T) {
	t.Parallel()
	to := make(chan struct{}, 1)
	Nudge(to)
	Nudge(to)
	<-to
	select {
	case <-to:
		t.Error("there were two values")
	default:
	}
}

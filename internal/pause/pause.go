// Package pause waits: until a duration has passed or a context has ended, and longer after each failure.
//
// The module github.com/cenkalti/backoff was compared and not chosen. It draws jitter from the global random source, so
// the simulator could not repeat a run. Its factor and its jitter around the mean would also move the bounds of each
// caller here, which double and stay between half of the waiting time and all of it.
package pause

import (
	"context"
	"time"
)

// For waits until d has passed, and returns the context's error if ctx ended first. It returns immediately if d is not
// positive.
func For(ctx context.Context, d time.Duration) error {
	_, err := Until(ctx, nil, d)
	return err
}

// Until waits for a value of wake, or its end, but no longer than d. It reports whether wake ended the wait, and
// returns the context's error if ctx ended first. It returns immediately if d is not positive.
func Until(ctx context.Context, wake <-chan struct{}, d time.Duration) (woken bool, err error) {
	if d <= 0 {
		return false, ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-wake:
		return true, nil
	case <-timer.C:
		return false, nil
	}
}

// Doubled returns first doubled once per failure, longest at most. It never overflows.
func Doubled(first, longest time.Duration, failures int) time.Duration {
	if failures < 20 && first<<failures < longest {
		return first << failures
	}
	return longest
}

// Jitter returns a duration between half of d and all of it, so that many waiting processes do not act at the same
// moment. Random returns numbers in [0, 1).
func Jitter(d time.Duration, random func() float64) time.Duration {
	return d/2 + time.Duration(random()*float64(d/2))
}

// Backoff is a waiting time that doubles with each failure. It is not for concurrent use.
type Backoff struct {
	// Shortest and Longest limit the waiting time before jitter.
	Shortest, Longest time.Duration
	// Random returns numbers in [0, 1) for jitter. Without it the waiting time has no jitter.
	Random   func() float64
	failures int
}

// Next returns the next waiting time, and counts a failure.
func (b *Backoff) Next() time.Duration {
	d := Doubled(b.Shortest, b.Longest, b.failures)
	b.failures++
	if b.Random == nil {
		return d
	}
	return Jitter(d, b.Random)
}

// Reset makes the next waiting time the shortest one.
func (b *Backoff) Reset() { b.failures = 0 }

// SetFailures sets the number of failures so far. From 20 on the next waiting time is the longest one.
func (b *Backoff) SetFailures(failures int) { b.failures = failures }

// OrElse returns b, or other if b is nil.
func (b *Backoff) OrElse(other *Backoff) *Backoff {
	if b == nil {
		return other
	}
	return b
}

// Wait waits for the next waiting time, and returns the context's error if ctx ended first.
func (b *Backoff) Wait(ctx context.Context) error { return For(ctx, b.Next()) }

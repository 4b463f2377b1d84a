package node

import (
	"context"
	"time"
)

// Backoff of an agent's requests to its server, and of steps that a single failure ends.
const (
	// MinDialBackoff and MaxDialBackoff limit the time between attempts to reach the server.
	MinDialBackoff = 200 * time.Millisecond
	MaxDialBackoff = 10 * time.Second
	// MinRetryBackoff is the shortest time between two attempts of one step or one report.
	MinRetryBackoff = 100 * time.Millisecond
	// FastProbeInterval is how often the agent probes its machine while an executor fails. It is also the longest time
	// between two attempts of a step that waits for an executor.
	FastProbeInterval = 5 * time.Second
)

// Backoff is a waiting time that doubles with each failure, with jitter. It is not for concurrent use.
type Backoff struct {
	shortest, longest time.Duration
	random            func() float64
	failures          int
}

// Next returns the next waiting time: between half of it and all of it, so that many agents do not retry at the same
// moment.
func (b *Backoff) Next() time.Duration {
	d := b.longest
	if b.failures < 20 && b.shortest<<b.failures < b.longest {
		d = b.shortest << b.failures
	}
	b.failures++
	return d/2 + time.Duration(b.random()*float64(d/2))
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

// Wait waits for the next waiting time and reports false if ctx ended.
func (b *Backoff) Wait(ctx context.Context) bool {
	timer := time.NewTimer(b.Next())
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

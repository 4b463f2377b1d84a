package yardstick

import (
	"context"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/pause"
)

const (
	// poll is the pause after the first check of Eventually. Later pauses grow to slowPoll, because frequent checks of
	// slow things only take processor time from what the caller waits for.
	poll     = 10 * time.Millisecond
	slowPoll = 200 * time.Millisecond
	// checkShare is the least ratio of a pause to the duration of the check before it, so that repeated commands leave
	// the machine to what the caller waits for. It counts up to longestPoll.
	checkShare  = 3
	longestPoll = time.Second
)

// pauseAfter returns the next pause after a pause and a check that took so long.
func pauseAfter(pause, took time.Duration) time.Duration {
	if inBubble() {
		return poll
	}
	return max(min(pause*5/4, slowPoll), min(checkShare*took, longestPoll))
}

// Eventually calls check until it returns nil, and returns check's last error once the limit has passed or ctx has
// ended. The limit is that of a quiet machine: it stretches while the machine is slow or busy (see Scaled).
func Eventually(ctx context.Context, limit time.Duration, check func() error) error {
	watch := NewStopwatch()
	for interval := min(poll, limit); ; {
		began := time.Now()
		err := check()
		took := time.Since(began)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("the wait was ended (%w): %w", context.Cause(ctx), err)
		case watch.over(limit):
			return fmt.Errorf("after %v, %v on the wall: %w", limit,
				time.Since(watch.began).Round(time.Millisecond), err)
		}
		_ = pause.For(ctx, interval) // the loop sees the end of the context
		interval = pauseAfter(interval, took)
	}
}

// Poll calls check until it returns nil or ctx has ended, and returns its last error. It checks once at least.
func Poll(ctx context.Context, check func() error) error {
	for interval := poll; ; {
		began := time.Now()
		err := check()
		if err == nil || ctx.Err() != nil {
			return err
		}
		took := time.Since(began)
		_ = pause.For(ctx, interval) // the loop sees the end of the context
		interval = pauseAfter(interval, took)
	}
}

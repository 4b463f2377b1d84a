package controlplane

import (
	"context"
	"time"
)

// mostPause bounds how long a cycle waits for more changes where only tasks changed.
const mostPause = 100 * time.Millisecond

// pace is how far apart cycles are. A cycle looks at all tasks of each owner of which one changed; while thousands of
// tasks report, cycles that followed each other closely would look at all of them again and again, and keep from the
// processor what they wait for.
type pace struct {
	// pause is the time between two cycles: twice what the last one took, unless that placed something.
	pause time.Duration
	ended time.Duration // when the last cycle ended, on the boot-time clock
}

// cycled takes note of a cycle.
func (p *pace) cycled(began, ended time.Duration, placed int) {
	p.pause, p.ended = min(2*(ended-began), mostPause), ended
	if placed > 0 {
		p.pause = 0
	}
}

// gather waits for more changes after the first: briefly, or where the last cycles cost much for as long as they took,
// unless what somebody wishes changes. It returns false where the context ended.
func (l *loop) gather(ctx context.Context) bool {
	if !sleep(ctx, gather) {
		return false
	}
	left := l.pace.ended + l.pace.pause - l.config.Clock()
	if left <= 0 {
		return true
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-l.follow.Wish():
	}
	return true
}

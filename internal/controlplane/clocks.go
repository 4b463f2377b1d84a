package controlplane

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// maxClockJump is the largest difference between wall clock and boot-time clock that is not a jump.
const maxClockJump = 5 * time.Second

// clocks compares the wall clock with the boot-time clock, which nobody can set (P9.1).
type clocks struct {
	wall time.Time
	boot time.Duration
}

// jumpSince returns by how much the wall clock was set since the last call. It is 0 for at most maxClockJump, and at
// the first call.
func (c *clocks) jumpSince(wall time.Time, boot time.Duration) time.Duration {
	wall = wall.Round(0) // without the monotonic reading, which does not jump
	last := *c
	c.wall, c.boot = wall, boot
	if last.wall.IsZero() {
		return 0
	}
	by := wall.Sub(last.wall) - (boot - last.boot)
	if by.Abs() <= maxClockJump {
		return 0
	}
	return by
}

// setSince sets the time from which deadlines count.
func (l *loop) setSince(now time.Time) {
	l.since = now
	l.plane.since.Store(&now)
}

// noteClockJump starts all silence and all deadlines again after a jump of the wall clock, and returns its event.
func (l *loop) noteClockJump() []store.Unit {
	boot := l.config.Clock()
	by := l.clocks.jumpSince(l.config.Now(), boot)
	if by == 0 {
		return nil
	}
	l.nodes.restartSilence(boot)
	l.setSince(l.now)
	l.config.Logger.Warn("the wall clock was set", "by", by)
	return []store.Unit{{Events: []cluster.Event{{
		Type: "clock.jumped",
		Message: fmt.Sprintf("the server's clock was set by %s; the silence of nodes and the deadlines of "+
			"rollouts count anew", by.Round(time.Millisecond)),
	}}}}
}

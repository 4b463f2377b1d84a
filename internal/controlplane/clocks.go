package controlplane

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// maxJump is by how much the wall clock may leave the boot-time clock without being told.
const maxJump = 5 * time.Second

// clocks compares the wall clock with the boot-time clock, which nobody sets (P9.1).
type clocks struct {
	wall time.Time
	boot time.Duration
}

// jumped returns by how much the wall clock was set since the last call, 0 where that is little or it is the first.
func (c *clocks) jumped(wall time.Time, boot time.Duration) time.Duration {
	wall = wall.Round(0) // without the monotonic reading, which does not jump
	last := *c
	c.wall, c.boot = wall, boot
	if last.wall.IsZero() {
		return 0
	}
	by := wall.Sub(last.wall) - (boot - last.boot)
	if by.Abs() <= maxJump {
		return 0
	}
	return by
}

// setSince has deadlines count from now on.
func (l *loop) setSince(now time.Time) {
	l.since = now
	l.plane.since.Store(&now)
}

// tellJump starts all silence and all deadlines again after a jump of the wall clock, and tells of it.
func (l *loop) tellJump() []store.Unit {
	boot := l.config.Clock()
	by := l.clocks.jumped(l.config.Now(), boot)
	if by == 0 {
		return nil
	}
	l.watch.armed = boot
	l.setSince(l.now)
	l.config.Logger.Warn("the wall clock was set", "by", by)
	return []store.Unit{{Events: []cluster.Event{{
		Type: "clock.jumped",
		Message: fmt.Sprintf("the server's clock was set by %s; the silence of nodes and the deadlines of "+
			"rollouts count anew", by.Round(time.Millisecond)),
	}}}}
}

package controlplane

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// maxClockJump is the largest difference between wall clock and boot-time clock that is not a jump.
const maxClockJump = 5 * time.Second

// clocks compares the wall clock with the boot-time clock, which cannot be set (P9.1).
type clocks struct {
	wall time.Time
	boot time.Duration
}

// jumpSince returns the amount by which the wall clock was set since the last call. It is 0 for at most maxClockJump,
// and at the first call.
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

// termClock is the clock of a leader's decisions. It never goes back, and never behind the last committed time (P9.1).
type termClock struct {
	config Config
	clocks clocks
	now    time.Time
	// since is the time from which deadlines count: the start of the term, or the last jump of the wall clock. publish
	// receives it.
	since   time.Time
	publish func(since time.Time)
}

// startTerm continues from the time of the newest committed event.
func (c *termClock) startTerm(snap *store.Snapshot) {
	if last, ok := snap.LastEvents(); ok {
		c.now = last.Value.At
	}
}

// advance moves the clock to the present.
func (c *termClock) advance() {
	if now := c.config.Now(); now.After(c.now) {
		c.now = now
	}
}

// startDeadlines has all deadlines count from now.
func (c *termClock) startDeadlines() {
	c.since = c.now
	c.publish(c.since)
}

// noteJump starts all deadlines again after a jump of the wall clock, and returns its event.
func (c *termClock) noteJump() (units []store.Unit, jumped bool) {
	by := c.clocks.jumpSince(c.config.Now(), c.config.Clock())
	if by == 0 {
		return nil, false
	}
	c.startDeadlines()
	c.config.Logger.Warn("the wall clock was set", "by", by)
	return []store.Unit{{Events: []cluster.Event{{
		Type: "clock.jumped",
		Message: fmt.Sprintf("the server's clock was set by %s; the silence of nodes and the deadlines of "+
			"the times of rollouts start again", by.Round(time.Millisecond)),
	}}}}, true
}

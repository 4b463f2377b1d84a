package controlplane

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/boottime"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

const (
	// clockSettleTime is how long a wall clock that was set forward must keep its new time before decisions use it. It
	// is shorter than cron.MaxLateness, so that no moment counts as missed because of it.
	clockSettleTime = 45 * time.Second
	// maxQuietTime is the age of the newest event up to which a new leader believes its wall clock.
	maxQuietTime = 5 * time.Minute
)

// termClock is the clock of a leader's decisions (P9.1). It is the wall clock, with these exceptions:
//
//   - It does not go back by boottime.MaxDifference or less.
//   - After the wall clock was set forward, it continues on the boot-time clock until the wall clock has kept the new
//     time for clockSettleTime. A wall clock that is set right again before then changes no decision.
//
// It follows a wall clock that was set back immediately. Nothing is decided early then, and the order of events does
// not depend on their times.
type termClock struct {
	config Config
	jumped boottime.Jumps
	now    time.Time
	// ahead is how far the wall clock is ahead of now, 0 unless it was set forward. aheadSince is the boot-time at
	// which it was set last.
	ahead, aheadSince time.Duration
	// lastBoot is the boot-time of now.
	lastBoot time.Duration
	// jumps are amounts by which the wall clock was set and which no event reports yet.
	jumps []time.Duration
	// isDoubtful says that the time at the start of the term may be wrong.
	isDoubtful bool
	clockTimes
	publish func(clockTimes) // receives each change
}

// clockTimes are the times of a term from which others count.
type clockTimes struct {
	// since is the time from which deadlines count: the start of the term, or the last jump of the wall clock.
	since time.Time
	// set is the time of the last jump of the wall clock, or the start of a term whose clock may be wrong; zero for
	// none.
	set time.Time
}

// startTerm begins with the time of the newest committed event, if the wall clock is behind it by at most
// boottime.MaxDifference. If the wall clock is behind by more, the clock of an earlier leader was ahead, and its time
// is not used. A clock that is behind the event, or ahead of it by more than maxQuietTime, may be wrong.
func (c *termClock) startTerm(snap *store.Snapshot) {
	last, ok := snap.LastEvents()
	if !ok {
		return
	}
	switch ahead := last.Value.At.Sub(c.config.Now()); {
	case ahead < -maxQuietTime:
		c.isDoubtful = true
	case ahead > boottime.MaxDifference:
		c.isDoubtful = true
		c.config.Logger.Warn("the newest event is later than this server's clock; one of the servers has a wrong clock",
			"by", ahead)
	case ahead > 0:
		c.now, c.lastBoot = last.Value.At, c.config.Clock()
	}
}

// advance moves the clock to the present. It reports whether the clock followed a wall clock that was set. Times that
// were computed before are wrong then.
func (c *termClock) advance() (followed bool) {
	wall, boot := c.config.Now().Round(0), c.config.Clock() // without the monotonic reading, which is never set
	defer func() { c.lastBoot = boot }()
	jump := c.jumped.Since(wall, boot)
	if jump != 0 {
		c.jumps = append(c.jumps, jump)
		c.ahead, c.aheadSince = c.ahead+jump, boot
	}
	switch {
	case c.ahead > boottime.MaxDifference && boot-c.aheadSince < clockSettleTime:
		c.now = c.now.Add(boot - c.lastBoot)
	case c.ahead.Abs() > boottime.MaxDifference:
		c.now, c.ahead, followed = wall, 0, true
	default:
		c.ahead = 0
		if wall.After(c.now) {
			c.now = wall
		}
	}
	if jump != 0 || followed || c.isDoubtful {
		c.set, c.isDoubtful = c.now, false
		c.startDeadlines()
	}
	return followed
}

// settles returns how long after now the clock follows a wall clock that was set forward; false if it was not.
func (c *termClock) settles() (left time.Duration, ok bool) {
	return c.aheadSince + clockSettleTime - c.lastBoot, c.ahead != 0
}

// startDeadlines has all deadlines count from now.
func (c *termClock) startDeadlines() {
	c.since = c.now
	c.publish(c.clockTimes)
}

// takeJumps returns the events of the jumps of the wall clock since the last call.
func (c *termClock) takeJumps() (units []store.Unit) {
	for _, by := range c.jumps {
		c.config.Logger.Warn("the wall clock was set", "by", by)
		message := fmt.Sprintf("the server's clock was set by %s; the silence of nodes and the deadlines of rollouts "+
			"start again", by.Round(time.Millisecond))
		if by > 0 {
			message += fmt.Sprintf("; decisions use the new time once the clock has kept it for %s", clockSettleTime)
		}
		units = append(units, store.Unit{Events: []cluster.Event{{Type: "clock.jumped", Message: message}}})
	}
	c.jumps = nil
	return units
}

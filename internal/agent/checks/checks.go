// Package checks looks again and again whether a task is well.
//
// Each check of a task has a goroutine of its own that waits, looks, and waits again; so a slow check delays nobody
// else and never overlaps itself. Only changes are reported; package lifecycle says what they mean together.
package checks

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/plain"
)

// Defaults of a check's settings that are 0.
const (
	defaultInterval = 5 * time.Second
	defaultTimeout  = 2 * time.Second
)

// A complaint that differs from the last one of the same state is reported minComplaintInterval after the last report.
// The interval doubles with each such report, up to maxComplaintInterval, so that a complaint that never repeats costs
// little.
const (
	minComplaintInterval = 5 * time.Second
	maxComplaintInterval = time.Minute
)

// spread is by how much of an interval looks are moved to and fro, so that the checks of many tasks do not beat
// together.
const spread = 0.1

// Config says what to look at.
type Config struct {
	Checks []cluster.Check
	// Which are the checks to look at, by their indices; the others are left alone.
	Which []int
	// States are what the checks have shown so far, one for each, or nil.
	States []lifecycle.CheckState
	// Up is for how long the task is up already: that much of the initial delays has passed.
	Up time.Duration
	// Probe looks once and returns why the task is not well. It must return soon after its context ended,
	// and is called concurrently for different checks.
	Probe func(ctx context.Context, c *cluster.Check) error
	// Changed receives each change of the state of a check, with what it answered where that was not well. It also
	// receives, at a bounded pace, another answer in the same state. It is called concurrently for different checks.
	Changed func(check int, state lifecycle.CheckState, complaint string)
	// Random returns a number from 0 up to 1; nil moves no look.
	Random func() float64
}

// Run looks until ctx ends. A check of the meaning startup is not looked at again once it has succeeded.
func Run(ctx context.Context, c Config) {
	var all sync.WaitGroup
	for _, i := range c.Which {
		all.Go(func() { c.check(ctx, i) })
	}
	all.Wait()
}

// check looks at one check by its interval.
func (w *Config) check(ctx context.Context, i int) {
	c := &w.Checks[i]
	var state lifecycle.CheckState
	if i < len(w.States) {
		state = w.States[i]
	}
	var said report
	interval := or(c.Interval, defaultInterval)
	timer := time.NewTimer(max(time.Duration(c.InitialDelay)-w.Up, 0))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		err := w.look(ctx, c)
		if ctx.Err() != nil {
			return
		}
		complaint := ""
		if err != nil {
			complaint = plain.Text(err)
		}
		next := lifecycle.NextHealth(state, err == nil, c.FailAfter)
		if said.isDue(state != next, complaint, time.Now()) {
			state = next
			w.Changed(i, state, complaint)
		}
		if err == nil && c.Means() == cluster.MeaningStartup {
			return
		}
		wait := interval
		if w.Random != nil {
			wait += time.Duration(spread * (w.Random() - 0.5) * float64(interval))
		}
		timer.Reset(max(wait-time.Since(began), 0))
	}
}

// report is the last report of a check.
type report struct {
	complaint string
	at        time.Time
	interval  time.Duration // until another complaint in the same state may be reported
}

// isDue decides whether a result is reported, and then remembers it as the last report.
func (r *report) isDue(changed bool, complaint string, now time.Time) bool {
	switch {
	case changed:
		r.interval = minComplaintInterval
	case complaint == r.complaint || now.Sub(r.at) < r.interval:
		return false
	default:
		r.interval = min(max(2*r.interval, minComplaintInterval), maxComplaintInterval)
	}
	r.complaint, r.at = complaint, now
	return true
}

func (w *Config) look(ctx context.Context, c *cluster.Check) error {
	timeout := or(c.Timeout, defaultTimeout)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := w.Probe(ctx, c)
	if ctx.Err() != nil {
		return fmt.Errorf("no answer within %v", timeout)
	}
	return err
}

func or(d cluster.Duration, standard time.Duration) time.Duration {
	if d <= 0 {
		return standard
	}
	return time.Duration(d)
}

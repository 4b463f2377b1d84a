// Package checks runs the checks of a task at their intervals.
//
// Each check has its own goroutine that waits, probes, and waits again. A slow check therefore delays no other check
// and never overlaps itself. Only changes are reported; package lifecycle combines them.
//
// The agent owns all checks: the record of an attempt on the node's disk holds their results, so restarts need no
// server. Liveness is no part of health: one failed liveness check restarts the task, but does not remove it from the
// addresses of its service.
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

// intervalJitter is the fraction of an interval by which probes are shifted, so that the checks of many tasks do not
// run at the same time.
const intervalJitter = 0.1

// Config configures the checks to run.
type Config struct {
	Checks []cluster.Check
	// Which lists the indices of the checks to run.
	Which []int
	// States are the states of all checks so far, or nil.
	States []lifecycle.CheckState
	// Up is how long the task has been up: that much of the initial delays has passed.
	Up time.Duration
	// Probe runs a check once and returns why the task is not healthy. It must return soon after its context ended, and
	// is called concurrently for different checks.
	Probe func(ctx context.Context, c *cluster.Check) error
	// Changed receives each change of a check's state, with the complaint of an unhealthy state. It also receives, at a
	// limited rate, another complaint in the same state. It is called concurrently for different checks.
	Changed func(check int, state lifecycle.CheckState, complaint string)
	// Random returns numbers in [0, 1); nil disables jitter.
	Random func() float64
}

// Run runs the checks until ctx ends. A startup check is not run again after its success.
func Run(ctx context.Context, c Config) {
	var all sync.WaitGroup
	for _, i := range c.Which {
		all.Go(func() { c.check(ctx, i) })
	}
	all.Wait()
}

// check runs one check at its interval.
func (w *Config) check(ctx context.Context, i int) {
	c := &w.Checks[i]
	var state lifecycle.CheckState
	if i < len(w.States) {
		state = w.States[i]
	}
	var last report
	interval := orDefault(c.Interval, defaultInterval)
	timer := time.NewTimer(max(time.Duration(c.InitialDelay)-w.Up, 0))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		err := w.probeOnce(ctx, c)
		if ctx.Err() != nil {
			return
		}
		complaint := ""
		if err != nil {
			complaint = plain.Text(err)
		}
		next := lifecycle.NextHealth(state, err == nil, c.FailAfter)
		complaint, due := last.next(state, next, complaint, time.Now())
		if due {
			state = next
			w.Changed(i, state, complaint)
		}
		if err == nil && c.EffectiveMeaning() == cluster.MeaningStartup {
			return
		}
		wait := interval
		if w.Random != nil {
			wait += time.Duration(intervalJitter * (w.Random() - 0.5) * float64(interval))
		}
		timer.Reset(max(wait-time.Since(began), 0))
	}
}

// report is the last report of a check's complaint.
type report struct {
	complaint string
	at        time.Time
	interval  time.Duration // until another complaint of the same health may be reported
}

// next decides whether a result is reported, and with which complaint: the last one where another one would come too
// soon.
func (r *report) next(before, after lifecycle.CheckState, complaint string, now time.Time) (text string, due bool) {
	switch {
	case before.Health != after.Health:
		r.interval = minComplaintInterval
	case complaint != r.complaint && now.Sub(r.at) >= r.interval:
		r.interval = min(max(2*r.interval, minComplaintInterval), maxComplaintInterval)
	default:
		return r.complaint, before != after
	}
	r.complaint, r.at = complaint, now
	return complaint, true
}

func (w *Config) probeOnce(ctx context.Context, c *cluster.Check) error {
	timeout := orDefault(c.Timeout, defaultTimeout)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := w.Probe(ctx, c)
	if ctx.Err() != nil {
		return fmt.Errorf("no answer within %v", timeout)
	}
	return err
}

func orDefault(d cluster.Duration, standard time.Duration) time.Duration {
	if d <= 0 {
		return standard
	}
	return time.Duration(d)
}

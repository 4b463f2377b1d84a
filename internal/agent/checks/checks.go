// Package checks looks again and again whether a task is well.
//
// Each check of a task has a goroutine of its own that waits, looks, and waits again; so a slow check
// delays nobody else and never overlaps itself. Only changes are told; package lifecycle says what they mean together.
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
	// Changed is told each change of the state of a check, with what it answered where that was not well. It is called
	// concurrently for different checks.
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
		if next := lifecycle.NextHealth(state, err == nil, c.FailAfter); next != state {
			complaint := ""
			if err != nil {
				complaint = plain.Text(err)
			}
			state = next
			w.Changed(i, state, complaint)
		}
		if err == nil && c.Means() == cluster.MeaningStartup {
			return
		}
		next := interval
		if w.Random != nil {
			next += time.Duration(spread * (w.Random() - 0.5) * float64(interval))
		}
		timer.Reset(max(next-time.Since(began), 0))
	}
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

// Package checks looks again and again whether a task is well.
//
// Each check of a task has a goroutine of its own that waits, looks, and waits again; so a slow check
// delays nobody else and never overlaps itself. The results are joined to one health by package
// lifecycle, and only its changes are told.
package checks

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
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
	// Probe looks once and returns why the task is not well. It must return soon after its context ended,
	// and is called concurrently for different checks.
	Probe func(ctx context.Context, c *cluster.Check) error
	// Changed is told each change of the joined health, never unknown, with the newest complaint; calls
	// do not overlap.
	Changed func(health cluster.Health, complaint string)
	// Random returns a number from 0 up to 1; nil moves no look.
	Random func() float64
}

// Run looks until ctx ends.
func Run(ctx context.Context, c Config) {
	w := watch{Config: c, states: make([]lifecycle.CheckState, len(c.Checks)), complaints: make([]string, len(c.Checks))}
	var all sync.WaitGroup
	for i := range c.Checks {
		all.Go(func() { w.check(ctx, i) })
	}
	all.Wait()
}

// watch is one Run.
type watch struct {
	Config
	mu         sync.Mutex
	states     []lifecycle.CheckState
	complaints []string
	told       cluster.Health
}

// check looks at one check by its interval.
func (w *watch) check(ctx context.Context, i int) {
	c := &w.Checks[i]
	interval := or(c.Interval, defaultInterval)
	timer := time.NewTimer(time.Duration(c.InitialDelay))
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
		w.result(i, err)
		next := interval
		if w.Random != nil {
			next += time.Duration(spread * (w.Random() - 0.5) * float64(interval))
		}
		timer.Reset(max(next-time.Since(began), 0))
	}
}

func (w *watch) look(ctx context.Context, c *cluster.Check) error {
	timeout := or(c.Timeout, defaultTimeout)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := w.Probe(ctx, c)
	if ctx.Err() != nil {
		return fmt.Errorf("no answer within %v", timeout)
	}
	return err
}

// result joins one more result to the others and tells a change.
func (w *watch) result(i int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.states[i] = lifecycle.NextHealth(w.states[i], err == nil, w.Checks[i].FailAfter)
	w.complaints[i] = ""
	if err != nil {
		w.complaints[i] = fmt.Sprintf("check %s: %v", w.Checks[i].Name, err)
	}
	health := lifecycle.Overall(w.states)
	if health == cluster.HealthUnknown || health == w.told {
		return
	}
	w.told = health
	complaint := ""
	for j, s := range w.states {
		if s.Health == health {
			complaint = w.complaints[j]
		}
	}
	w.Changed(health, complaint)
}

func or(d cluster.Duration, standard time.Duration) time.Duration {
	if d <= 0 {
		return standard
	}
	return time.Duration(d)
}

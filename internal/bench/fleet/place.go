package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/api/client"
)

// place measures placements: agents in this process, the server in another.
func place(ctx context.Context, o options, stdout, stderr io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	s, err := startServer(ctx, o, stderr)
	if err != nil {
		return err
	}
	defer s.stop()

	count := counts{services: make(chan string, 1024)}
	group, fleet := errgroup.WithContext(ctx)
	door := make(chan struct{}, entering)
	for i := range o.agents {
		group.Go(func() error { return startAgent(fleet, s, i, &count, door) })
	}
	result := make(chan error, 1)
	what := measure
	if o.brief > 0 {
		what = measureBrief
	}
	go func() { result <- what(ctx, s, o, &count, stdout) }()
	select {
	case err = <-result:
	case <-fleet.Done():
		err = errors.New("an agent ended early")
	}
	cancel()
	if aerr := group.Wait(); err != nil && aerr != nil {
		err = errors.Join(err, aerr)
	}
	return err
}

// counts is the sum of the reports of the agents and the reader of the events.
type counts struct {
	ready    atomic.Int64 // agents that registered and whose assignment stream is open
	placed   atomic.Int64 // tasks with an event of their placement
	assigned atomic.Int64 // assignments that agents received
	running  atomic.Int64 // tasks whose report that they run was acknowledged
	ended    atomic.Int64 // tasks whose report that they ended was acknowledged
	again    atomic.Int64 // reports that were sent again
	services chan string  // gets the service of each task of one that arrives at its agent, as long as it has room
}

// row is the outcome of a measurement.
type row struct {
	submitted, placed, assigned, running time.Duration // since the first submission
	idle, before, after                  figures
	agents                               float64 // CPU seconds of this process
	settled                              figures
}

// measure submits the load and waits until all tasks are placed, the agents have them, and all of them run.
func measure(ctx context.Context, s *server, o options, c *counts, out io.Writer) error {
	if err := until(ctx, func() bool { return c.ready.Load() == int64(o.agents) }); err != nil {
		return fmt.Errorf("%d of %d agents are ready: %w", c.ready.Load(), o.agents, err)
	}
	load, err := loadOf(o)
	if err != nil {
		return err
	}
	api, err := client.New(client.Config{Addr: s.address, Token: s.token})
	if err != nil {
		return err
	}
	var r row
	if err := prepare(ctx, s, o, load, api, out); err != nil {
		return err
	}
	go c.followPlacements(ctx, api)
	if err := s.rest(ctx, o.rest); err != nil {
		return err
	}
	if r.idle, err = s.figures(ctx, api, o, o.rest > 0); err != nil {
		return err
	}
	if err := s.profile(ctx, api, o); err != nil {
		return err
	}
	if r.before, err = s.figures(ctx, api, o, false); err != nil {
		return err
	}
	own, began := process(os.Getpid()).cpu(), time.Now()
	submitted := make(chan error, 1)
	go func() {
		err := load.submit(ctx, s)
		r.submitted = time.Since(began)
		submitted <- err
	}()
	total := int64(load.tasks)
	for _, stage := range []struct {
		what  string
		count *atomic.Int64
		took  *time.Duration
	}{
		{"placed", &c.placed, &r.placed},
		{"at agents", &c.assigned, &r.assigned},
		{"reported running", &c.running, &r.running},
	} {
		if err := until(ctx, func() bool { return stage.count.Load() >= total }); err != nil {
			return fmt.Errorf("%d of %d tasks are %s: %w", stage.count.Load(), total, stage.what, err)
		}
		*stage.took = time.Since(began)
	}
	if err := <-submitted; err != nil {
		return err
	}
	r.agents = process(os.Getpid()).cpu() - own
	if r.after, err = s.figures(ctx, api, o, false); err != nil {
		return err
	}
	if err := s.rest(ctx, o.rest); err != nil {
		return err
	}
	if r.settled, err = s.figures(ctx, api, o, o.rest > 0); err != nil {
		return err
	}
	if err := s.allocated(ctx, api, o); err != nil { // also what is in use, after the collection for the figures
		return err
	}
	r.print(out, o, load)
	if s.consul != nil {
		if err := s.consul.loaded(ctx, load.tasks, out); err != nil {
			return fmt.Errorf("ask Consul: %w", err)
		}
	}
	if n := c.again.Load(); n > 0 {
		fmt.Fprintf(out, "\n%d reports were sent again: the server could not take them immediately\n", n)
	}
	if o.latency > 0 {
		return latency(ctx, s, o, load.tasks, r.rate(load.tasks, r.placed), c.services, out)
	}
	return s.profiled()
}

// prepare writes what the load needs, starts the scheduler, and measures Consul before the load.
func prepare(ctx context.Context, s *server, o options, l *load, api *client.Client, out io.Writer) error {
	if err := l.prepare(ctx, api); err != nil {
		return err
	}
	if o.scheduler != "" {
		if err := startScheduler(ctx, s, api, o.scheduler, out); err != nil {
			return fmt.Errorf("start the scheduler: %w", err)
		}
	}
	if s.consul != nil {
		if err := s.consul.idle(ctx, o, out); err != nil {
			return fmt.Errorf("ask Consul: %w", err)
		}
	}
	return nil
}

func (r *row) rate(tasks int, d time.Duration) float64 { return float64(tasks) / d.Seconds() }

// until polls a condition every few milliseconds.
func until(ctx context.Context, holds func() bool) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

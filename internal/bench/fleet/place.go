package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
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

	var count counts
	group, fleet := errgroup.WithContext(ctx)
	for i := range o.agents {
		group.Go(func() error { return newAgent(s, i, &count).run(fleet) })
	}
	result := make(chan error, 1)
	go func() { result <- measure(ctx, s, o, &count, stdout) }()
	select {
	case err = <-result:
	case <-fleet.Done():
		err = errors.New("an agent ended early")
	}
	cancel()
	if aerr := group.Wait(); err != nil && aerr != nil && !errors.Is(aerr, context.Canceled) {
		err = errors.Join(err, aerr)
	}
	return err
}

// counts is what the agents have seen together.
type counts struct {
	ready, assigned, running atomic.Int64
}

// measure submits the jobs and waits until the agents have all tasks, and all of them run.
func measure(ctx context.Context, s *server, o options, c *counts, out io.Writer) error {
	if err := until(ctx, func() bool { return c.ready.Load() == int64(o.agents) }); err != nil {
		return fmt.Errorf("%d of %d agents are ready: %w", c.ready.Load(), o.agents, err)
	}
	api, err := client.New(client.Config{Addr: s.address, Token: s.token})
	if err != nil {
		return err
	}
	if err := submit(ctx, api, o, -1); err != nil { // the definition
		return err
	}
	cpu := s.cpu()
	began := time.Now()
	for i := range o.jobs {
		if err := submit(ctx, api, o, i); err != nil {
			return err
		}
	}
	submitted := time.Since(began)
	total := int64(o.jobs * o.tasks)
	if err := until(ctx, func() bool { return c.assigned.Load() >= total }); err != nil {
		return fmt.Errorf("%d of %d tasks were placed: %w", c.assigned.Load(), total, err)
	}
	placed := time.Since(began)
	if err := until(ctx, func() bool { return c.running.Load() >= total }); err != nil {
		return fmt.Errorf("%d of %d tasks run: %w", c.running.Load(), total, err)
	}
	running := time.Since(began)
	rate := func(d time.Duration) float64 { return float64(total) / d.Seconds() }
	fmt.Fprintf(out, "| agents | jobs × tasks | submitted, s | placed, s | placed/s | running, s | running/s | server CPU, s | server RSS, MB |\n")
	fmt.Fprintf(out, "|---|---|---|---|---|---|---|---|---|\n")
	fmt.Fprintf(out, "| %d | %d × %d | %.2f | %.2f | %.0f | %.2f | %.0f | %.1f | %d |\n", o.agents, o.jobs, o.tasks,
		submitted.Seconds(), placed.Seconds(), rate(placed), running.Seconds(), rate(running), s.cpu()-cpu, s.rss()>>20)
	return nil
}

// submit applies the definition (-1) or one job.
func submit(ctx context.Context, c *client.Client, o options, job int) error {
	object := api.Object{Kind: cluster.KindTaskDefinition}
	var spec any = &cluster.TaskDefinition{Name: "noop", Version: 1, Containers: []cluster.Container{{
		Name: "main", Command: []string{"true"}, Resources: cluster.Resources{CPU: 100, Memory: 64 * cluster.MiB},
	}}}
	if job >= 0 {
		object.Kind = cluster.KindJob
		spec = &cluster.Job{Name: fmt.Sprintf("job-%d", job), Steps: []cluster.Step{{
			Name: "s", Definition: cluster.Ref{Name: "noop", Version: 1}, Count: o.tasks,
		}}}
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	object.Spec = raw
	_, err = c.Apply(ctx, api.ApplyRequest{Objects: []api.Object{object}})
	return err
}

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

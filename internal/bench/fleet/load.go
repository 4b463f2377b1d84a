package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
)

// racks is how many values the label has that the load "racks" spreads over.
const racks = 25

// load is the requested work.
type load struct {
	name    string
	tasks   int
	clients int
	// objects are applied one by one, by the clients together.
	objects []api.Object
}

// loadOf returns the load of the options.
func loadOf(o options) (*load, error) {
	l := &load{name: o.load, clients: o.clients}
	for i := range o.jobs {
		var spec any
		kind := cluster.KindJob
		step := cluster.Step{Name: "s", Definition: cluster.Ref{Name: "noop", Version: 1}, Count: o.tasks}
		switch o.load {
		case "jobs":
		case "racks":
			step.Placement.Spread = []cluster.Spread{{Attribute: "label.rack"}}
		case "services":
			kind = cluster.KindService
			spec = &cluster.Service{Name: fmt.Sprintf("service-%d", i), Definition: step.Definition, Count: o.tasks}
		default:
			return nil, fmt.Errorf("-load %s: want jobs, racks or services", o.load)
		}
		if spec == nil {
			spec = &cluster.Job{Name: fmt.Sprintf("job-%d", i), Steps: []cluster.Step{step}}
		}
		raw, err := json.Marshal(spec)
		if err != nil {
			return nil, err
		}
		l.objects = append(l.objects, api.Object{Kind: kind, Spec: raw})
		l.tasks += o.tasks
	}
	return l, nil
}

// prepare applies what the load needs: the definition.
func (l *load) prepare(ctx context.Context, c *client.Client) error {
	raw, err := json.Marshal(&cluster.TaskDefinition{Name: "noop", Version: 1, Containers: []cluster.Container{{
		Name: "main", Command: []string{"true"}, Resources: cluster.Resources{CPU: 10, Memory: 8 * cluster.MiB},
	}}})
	if err != nil {
		return err
	}
	_, err = c.Apply(ctx, api.ApplyRequest{Objects: []api.Object{{Kind: cluster.KindTaskDefinition, Spec: raw}}})
	return err
}

// submit applies all objects, one a request, from as many clients as the load has; each has a connection of its own.
func (l *load) submit(ctx context.Context, s *server) error {
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range l.clients {
		group.Go(func() error {
			c, err := client.New(client.Config{Addr: s.address, Token: s.token})
			if err != nil {
				return err
			}
			defer c.Close()
			for {
				i := int(next.Add(1)) - 1
				if i >= len(l.objects) {
					return nil
				}
				if _, err := c.Apply(ctx, api.ApplyRequest{Objects: l.objects[i : i+1]}); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}

// followPlacements counts the placements in the event log until the context ends. The placement of an event is durable.
func (c *counts) followPlacements(ctx context.Context, api *client.Client) {
	for e, err := range api.FollowEvents(ctx, client.EventOptions{Types: []string{"task.assigned"}}) {
		if err != nil {
			return // until the limit nothing more is counted, which shows the fault
		}
		c.placed.Add(int64(max(1, e.Count)))
	}
}

// latency submits services of one task, one after the other, to a fleet with that many tasks. It prints the time until
// each has arrived as CSV.
func latency(ctx context.Context, s *server, o options, tasks int, rate float64, arrived <-chan string,
	out io.Writer,
) error {
	took, err := latencies(ctx, s, "one", o.latency, arrived)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "csv: nodes,tasks,placed_per_second,latency_p50_ms,latency_p99_ms\ncsv: %d,%d,%.0f,%.1f,%.1f\n",
		o.agents, tasks, rate, quantile(took, 0.5), quantile(took, 0.99))
	return nil
}

// latencies submits services of one task, one after the other, and returns the time until each task has arrived,
// sorted. arrived gets the names of the services.
func latencies(ctx context.Context, s *server, prefix string, count int, arrived <-chan string) ([]time.Duration,
	error,
) {
	api1, err := client.New(client.Config{Addr: s.address, Token: s.token})
	if err != nil {
		return nil, err
	}
	defer api1.Close()
	var took []time.Duration
	for i := range count {
		name := fmt.Sprintf("%s-%d", prefix, i)
		raw, err := json.Marshal(
			&cluster.Service{Name: name, Definition: cluster.Ref{Name: "noop", Version: 1}, Count: 1})
		if err != nil {
			return nil, err
		}
		began := time.Now()
		if _, err := api1.Apply(ctx,
			api.ApplyRequest{Objects: []api.Object{{Kind: cluster.KindService, Spec: raw}}}); err != nil {
			return nil, err
		}
		for got := ""; got != name; {
			select {
			case got = <-arrived:
			case <-ctx.Done():
				return nil, errors.Join(fmt.Errorf("%s was not placed", name), ctx.Err())
			}
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took, nil
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
)

// Shape of the measurement of brief tasks. A node has room for 44 of them.
const (
	briefCPU      = cluster.MilliCPU(90) // leaves room for services
	briefServices = 100                  // the services of one task whose latency is measured
	briefWarmUp   = 5 * time.Second      // the time before the rate is measured
)

// measureBrief measures the latency of a service without jobs, and beside jobs whose first tasks fill the nodes while
// many more wait. Then all tasks end as soon as they have begun. It measures their rate from submission to outcome,
// their cost for the server, the memory of those that wait, and the latency of a service again.
func measureBrief(ctx context.Context, s *server, o options, c *counts, out io.Writer) error {
	if err := until(ctx, func() bool { return c.ready.Load() == int64(o.agents) }); err != nil {
		return fmt.Errorf("%d of %d agents are ready: %w", c.ready.Load(), o.agents, err)
	}
	api1, err := client.New(client.Config{Addr: s.address, Token: s.token})
	if err != nil {
		return err
	}
	defer api1.Close()
	l := &load{}
	if err := l.prepare(ctx, api1); err != nil {
		return err
	}
	alone, err := latencies(ctx, s, "alone", briefServices, c.services)
	if err != nil {
		return err
	}
	idle, err := s.figures(ctx, api1, o, true)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := submitBrief(ctx, api1, o); err != nil {
		return err
	}
	submitted := time.Since(began)
	places := int64(o.agents) * int64(facts.CPU/briefCPU)
	if err := until(ctx, func() bool { return c.running.Load() >= min(places, int64(o.jobs*o.tasks)) }); err != nil {
		return fmt.Errorf("%d tasks run: %w", c.running.Load(), err)
	}
	waiting, err := latencies(ctx, s, "waiting", briefServices, c.services)
	if err != nil {
		return err
	}
	close(s.ending)
	if err := pause.For(ctx, briefWarmUp); err != nil {
		return err
	}
	before, err := s.figures(ctx, api1, o, false)
	if err != nil {
		return err
	}
	if err := s.profile(ctx, api1, o); err != nil {
		return err
	}
	first, own, from := c.ended.Load(), process(os.Getpid()).cpu(), time.Now()
	if err := pause.For(ctx, o.brief); err != nil {
		return err
	}
	ended, took := float64(c.ended.Load()-first), time.Since(from).Seconds()
	own = process(os.Getpid()).cpu() - own
	after, err := s.figures(ctx, api1, o, true)
	if err != nil {
		return err
	}
	if err := s.profiled(); err != nil {
		return err
	}
	beside, err := latencies(ctx, s, "beside", briefServices, c.services)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "| agents | jobs × tasks | submitted in | tasks/s | server, ms of CPU a task | writes a task "+
		"| bytes written a task | heap before, MB | heap with the queue, MB | agents, cores |\n"+
		"|---|---|---|---|---|---|---|---|---|---|\n"+
		"| %d | %d × %d | %.2f s | %.0f | %.2f | %.1f | %.0f | %.0f | %.0f | %.2f |\n\n",
		o.agents, o.jobs, o.tasks, submitted.Seconds(), ended/took, 1000*(after.cpu-before.cpu)/ended,
		(after.writes-before.writes)/ended, (after.written-before.written)/ended, idle.heap/1e6, after.heap/1e6,
		own/took)
	fmt.Fprintf(out, "| a service's task is at its agent after | median, ms | 99 %%, ms |\n|---|---|---|\n"+
		"| without jobs | %.1f | %.1f |\n| beside jobs that wait | %.1f | %.1f |\n"+
		"| beside tasks that end | %.1f | %.1f |\n",
		quantile(alone, 0.5), quantile(alone, 0.99), quantile(waiting, 0.5), quantile(waiting, 0.99),
		quantile(beside, 0.5), quantile(beside, 0.99))
	return nil
}

// submitBrief submits the jobs.
func submitBrief(ctx context.Context, c *client.Client, o options) error {
	raw, err := json.Marshal(&cluster.TaskDefinition{Name: "brief", Version: 1, Containers: []cluster.Container{{
		Name: "main", Command: []string{"true"}, Resources: cluster.Resources{CPU: briefCPU, Memory: cluster.MiB},
	}}})
	if err != nil {
		return err
	}
	objects := []api.Object{{Kind: cluster.KindTaskDefinition, Spec: raw}}
	for i := range o.jobs {
		raw, err := json.Marshal(&cluster.Job{Name: fmt.Sprintf("brief-%d", i), Steps: []cluster.Step{{
			Name: "s", Definition: cluster.Ref{Name: "brief", Version: 1}, Count: o.tasks,
		}}})
		if err != nil {
			return err
		}
		objects = append(objects, api.Object{Kind: cluster.KindJob, Spec: raw})
	}
	for part := range slices.Chunk(objects, 50) {
		if _, err := c.Apply(ctx, api.ApplyRequest{Objects: part}); err != nil {
			return err
		}
	}
	return nil
}

// quantile returns a quantile of sorted times in milliseconds.
func quantile(sorted []time.Duration, share float64) float64 {
	return float64(sorted[int(share*float64(len(sorted)-1))].Microseconds()) / 1000
}

// endBrief turns running tasks into ones that ended well.
func endBrief(tasks []cluster.Observed) []cluster.Observed {
	for i := range tasks {
		o := &tasks[i]
		if o.State == cluster.StateRunning {
			o.State, o.Finished = cluster.StateSucceeded, time.Now()
			o.Containers = []cluster.ContainerStatus{{Name: "main", Exit: &cluster.Exit{At: o.Finished}}}
		}
	}
	return tasks
}

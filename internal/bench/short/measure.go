package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
)

// tasksPerJob keeps the steps small enough for the API to list each task.
const tasksPerJob = 1000

// nodeCPU is the CPU of a node that the tasks share.
const nodeCPU = cluster.MilliCPU(1000)

// taskMemory is the memory limit of a task. It leaves room for runc, which begins in the container's cgroup.
const taskMemory = 16 * cluster.MiB

// result holds the figures of one measurement.
type result struct {
	tasks   float64 // outcomes
	took    time.Duration
	cpu     usage           // while they ended
	started []time.Duration // from the placement to the start of the program, sorted
	ended   []time.Duration // from the end of the program to its outcome, sorted
}

// outcomes collects the events of ended tasks. Its methods may be called concurrently.
type outcomes struct {
	mu    sync.Mutex
	ended map[cluster.TaskID]time.Time // when the outcome was recorded, by the server's clock
	err   error                        // a task that failed, or the end of the stream
}

// follow collects events until the context ends.
func (c *outcomes) follow(ctx context.Context, api *client.Client) {
	for e, err := range api.FollowEvents(ctx, client.EventOptions{Types: []string{
		"task.succeeded", "task.failed", "task.rejected", "task.lost",
	}}) {
		c.mu.Lock()
		switch {
		case err != nil:
			c.err = err
		case e.Type != "task.succeeded":
			c.err = fmt.Errorf("%s: %s: %s", e.Task, e.Type, e.Message)
		default:
			c.ended[e.Task] = e.At
		}
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// count returns the number of outcomes so far.
func (c *outcomes) count() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ended), c.err
}

// measure submits the jobs and measures the rate of outcomes.
func (d *domain) measure(ctx context.Context, o options) (r result, err error) {
	following, stop := context.WithCancel(ctx)
	defer stop()
	seen := &outcomes{ended: map[cluster.TaskID]time.Time{}}
	go seen.follow(following, d.client)
	if err := d.submit(ctx, o); err != nil {
		return r, err
	}
	if err := pause.For(ctx, o.warmUp); err != nil {
		return r, err
	}
	profiled := d.profile(ctx, o)
	first, err := seen.count()
	if err != nil {
		return r, err
	}
	before, began := d.usage(), time.Now()
	if err := pause.For(ctx, o.length); err != nil {
		return r, err
	}
	last, err := seen.count()
	if err != nil {
		return r, err
	}
	r.took, r.cpu = time.Since(began), d.usage().minus(before)
	r.tasks = float64(last - first)
	if last == first {
		return r, errors.New("no task has ended")
	}
	if last >= o.jobs*tasksPerJob {
		return r, errors.New("all tasks have ended: submit more (-jobs)")
	}
	stop()
	if err := <-profiled; err != nil {
		return r, err
	}
	return r, d.latencies(ctx, seen, began, &r)
}

// submit submits the jobs, each with the tasks of one step.
func (d *domain) submit(ctx context.Context, o options) error {
	container := cluster.Container{
		Name: "main", Command: []string{"true"},
		Resources: cluster.Resources{CPU: nodeCPU / cluster.MilliCPU(o.places), Memory: taskMemory},
	}
	if o.executor == executorContainerd {
		container.Image, container.Pull = image, cluster.PullNever
		container.Command = []string{"/bin/busybox", "true"}
	}
	raw, err := json.Marshal(&cluster.TaskDefinition{
		Name: "short", Version: 1, Containers: []cluster.Container{container},
	})
	if err != nil {
		return err
	}
	objects := []api.Object{{Kind: cluster.KindTaskDefinition, Spec: raw}}
	for i := range o.jobs {
		name := fmt.Sprintf("short-%d", i)
		raw, err := json.Marshal(&cluster.Job{Name: name, Steps: []cluster.Step{{
			Name: "s", Definition: cluster.Ref{Name: "short", Version: 1}, Count: tasksPerJob,
		}}})
		if err != nil {
			return err
		}
		d.jobs = append(d.jobs, name)
		objects = append(objects, api.Object{Kind: cluster.KindJob, Spec: raw})
	}
	for part := range slices.Chunk(objects, 50) {
		if _, err := d.client.Apply(ctx, api.ApplyRequest{Objects: part}); err != nil {
			return err
		}
	}
	return nil
}

// profile writes a CPU profile of the server while tasks end, if requested. The channel gets the result.
func (d *domain) profile(ctx context.Context, o options) <-chan error {
	done := make(chan error, 1)
	if o.profile == "" {
		done <- nil
		return done
	}
	go func() {
		f, err := os.Create(o.profile)
		if err == nil {
			err = errors.Join(d.client.Profile(ctx, "profile", o.length, f), f.Close())
		}
		done <- err
	}()
	return done
}

// latencies reads the times of the tasks whose outcome was recorded after a time.
func (d *domain) latencies(ctx context.Context, seen *outcomes, after time.Time, r *result) error {
	for _, job := range d.jobs {
		tasks, _, err := client.All(ctx, client.ListOptions{}, func(ctx context.Context, o client.ListOptions) (
			api.Page[api.TaskView], error,
		) {
			return d.client.Tasks(ctx, client.TaskFilter{Cluster: cluster.DefaultCluster, Job: job, All: true}, o)
		})
		if err != nil {
			return err
		}
		for i := range tasks {
			t := &tasks[i]
			at, ok := seen.ended[t.ID]
			if !ok || at.Before(after) || t.Started.IsZero() || t.Finished.IsZero() {
				continue
			}
			r.started = append(r.started, t.Started.Sub(t.Placed))
			r.ended = append(r.ended, at.Sub(t.Finished))
		}
	}
	if len(r.started) == 0 {
		return errors.New("the times of no task are known")
	}
	slices.Sort(r.started)
	slices.Sort(r.ended)
	return nil
}

// print writes the tables.
func (r *result) print(out io.Writer, o options) {
	perTask := func(seconds float64) float64 { return 1000 * seconds / r.tasks }
	fmt.Fprintf(out, "| executor | agents × tasks at a time | tasks/s | ms of CPU a task: server | agents "+
		"| supervisors and programs | whole machine | cores in use |\n|---|---|---|---|---|---|---|---|\n"+
		"| %s | %d × %d | %.1f | %.2f | %.2f | %.2f | %.2f | %.2f |\n\n",
		o.executor, o.agents, o.places, r.tasks/r.took.Seconds(), perTask(r.cpu.server), perTask(r.cpu.agents),
		perTask(r.cpu.children), perTask(r.cpu.machine), r.cpu.machine/r.took.Seconds())
	fmt.Fprintf(out, "| latency of a task, ms | median | 99 %% |\n|---|---|---|\n"+
		"| placement to start of the program | %.1f | %.1f |\n| end of the program to its outcome | %.1f | %.1f |\n",
		quantile(r.started, 0.5), quantile(r.started, 0.99), quantile(r.ended, 0.5), quantile(r.ended, 0.99))
}

// quantile returns a quantile of sorted times in milliseconds.
func quantile(sorted []time.Duration, share float64) float64 {
	return float64(sorted[int(share*float64(len(sorted)-1))].Microseconds()) / 1000
}

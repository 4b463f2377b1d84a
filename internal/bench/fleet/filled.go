package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/apiserver"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/boottime"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/heap"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/store"
)

// filled measures a server whose store holds a fleet with running tasks, without agents: nodes send only signs of life.
// The server is in this process: its API on a socket, its control plane, and its store with fsync. It prints the rate
// of placements on that fleet, and the time of single services.
func filled(ctx context.Context, o options, stdout io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	o.whole = true
	log := slog.New(slog.DiscardHandler)
	engine, closed, err := openStore(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closed()) }()
	if err := fill(ctx, engine, o.agents, o.filled); err != nil {
		return fmt.Errorf("fill the store: %w", err)
	}
	dir, err := os.MkdirTemp("", "berth-fleet-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // the socket
	s := &server{address: "unix://" + filepath.Join(dir, "api.sock")}
	listener, err := apiserver.Listen(s.address)
	if err != nil {
		return err
	}
	tables := store.NewTables(store.TablesConfig{Engine: engine, Logger: log})
	plane := controlplane.New(controlplane.Config{
		Engine: engine, Tables: tables, Domain: cluster.DefaultDomain, Server: "fleet",
		Random: rand.New(rand.NewPCG(1, 1)),
		Logger: log, Now: time.Now, Clock: boottime.Now,
	})
	front := apiserver.New(apiserver.Config{
		Engine: engine, Tables: tables, Leader: views.LeaderOn(views.OnlyDefault(plane)), Log: log,
		Permissions: cluster.Permissions(),
	})
	running, stop := context.WithCancel(ctx)
	parts, running := errgroup.WithContext(running)
	parts.Go(func() error { return tables.Run(running) })
	parts.Go(func() error { return front.Serve(running, listener) })
	parts.Go(func() error { return heap.Tend(running) })
	parts.Go(func() error {
		select {
		case <-tables.Synced():
		case <-running.Done():
			return running.Err()
		}
		for i := range o.agents { // as other servers report
			tables.SetPulse(filledNode(i), cluster.Pulse{Session: 1, Seq: 1, At: boottime.Now(), Next: time.Hour})
		}
		return plane.Run(running)
	})
	err = measureFilled(running, s, o, tables, stdout)
	stop()
	if perr := parts.Wait(); err == nil && !errors.Is(perr, context.Canceled) {
		err = perr
	}
	return err
}

// measureFilled submits the load once the plane rests, and single services after it.
func measureFilled(ctx context.Context, s *server, o options, tables *store.Tables, out io.Writer) error {
	<-tables.Synced()
	api, err := client.New(client.Config{Addr: s.address})
	if err != nil {
		return err
	}
	defer api.Close()
	l, err := loadOf(o)
	if err != nil {
		return err
	}
	if err := l.prepare(ctx, api); err != nil {
		return err
	}
	var c counts
	go c.followPlacements(ctx, api)
	first := o
	first.load, first.jobs, first.tasks = "services", 1, 1
	one, err := loadOf(first)
	if err != nil {
		return err
	}
	if err := one.submit(ctx, s); err != nil {
		return err
	}
	// it leads, and has evaluated all objects
	if err := until(ctx, func() bool { return c.placed.Load() > 0 }); err != nil {
		return fmt.Errorf("the first task is placed: %w", err)
	}
	if err := restful(ctx, tables); err != nil {
		return err
	}
	l.tasks += one.tasks
	runtime.GC()
	profiled, err := startProfiles(o)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := l.submit(ctx, s); err != nil {
		return err
	}
	if err := until(ctx, func() bool { return c.placed.Load() >= int64(l.tasks) }); err != nil {
		return fmt.Errorf("%d of %d tasks are placed: %w", c.placed.Load(), l.tasks, err)
	}
	rate := float64(l.tasks) / time.Since(began).Seconds()
	if err := restful(ctx, tables); err != nil {
		return err
	}
	arrived := make(chan string, 16)
	placements, end := context.WithCancel(ctx)
	defer end()
	go followServices(placements, tables, arrived)
	return errors.Join(latency(ctx, s, o, o.filled, rate, arrived, out), profiled())
}

// followServices sends the owner of each attempt that appears in the tables, until the context ends.
func followServices(ctx context.Context, tables *store.Tables, arrived chan<- string) {
	f := tables.Follow()
	defer f.Close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.Wake():
		}
		for key := range f.Take().Attempts {
			parts, _ := key.Task.Parts()
			select {
			case arrived <- parts.Owner:
			case <-ctx.Done():
				return
			}
		}
	}
}

// restful waits until a second has passed in which nothing happened.
func restful(ctx context.Context, tables *store.Tables) error {
	for at, since := -1, time.Now(); time.Since(since) < time.Second; _ = pause.For(ctx, 10*time.Millisecond) {
		if ctx.Err() != nil {
			return fmt.Errorf("the control plane never rests: %w", ctx.Err())
		}
		if now := tables.Snapshot().EventCount(); now != at {
			at, since = now, time.Now()
		}
	}
	return nil
}

func filledNode(i int) string { return fmt.Sprintf("n%06d", i) }

// tasksOfEach is how many tasks a service of a filled store runs.
const tasksOfEach = 1000

// fill stores nodes, and services whose tasks run on the nodes in turn.
func fill(ctx context.Context, engine store.Engine, nodes, tasks int) error {
	f := filler{ctx: ctx, engine: engine}
	prefix, began := store.Prefix(store.DefaultPrefix), time.Now().UTC()
	def := cluster.Ref{Name: "filled", Version: 1}
	f.put(prefix.Definition(def), &cluster.TaskDefinition{Name: def.Name, Version: 1, Containers: []cluster.Container{{
		Name: "main", Command: []string{"true"}, Resources: cluster.Resources{CPU: 100, Memory: 64 * cluster.MiB},
	}}})
	for i := range nodes {
		name, own := filledNode(i), facts
		own.Hostname, own.Labels = name, cluster.Labels{"rack": fmt.Sprintf("r%d", i%racks)}
		f.put(prefix.Node(name), &cluster.Node{
			Name: name, State: cluster.NodeReady, Since: began, Domain: cluster.DefaultDomain, Generation: 1,
			Session: 1,
		})
		f.put(prefix.NodeStatus(name),
			&cluster.NodeStatus{Name: name, Session: 1, Registered: began, Synced: true, Facts: own})
	}
	for done := 0; done < tasks; done += tasksOfEach {
		name, count := fmt.Sprintf("filled-%d", done/tasksOfEach), min(tasksOfEach, tasks-done)
		owner := cluster.OwnerRef{Kind: cluster.KindService, Cluster: cluster.DefaultCluster, Name: name}
		f.put(prefix.Service(owner.Cluster, name), &cluster.Service{
			Cluster: owner.Cluster, Name: name, Count: count, Definition: def, Priority: 500,
			OnDisconnect: cluster.DisconnectKeep, Lifespan: cluster.Lifespan{Generation: 1, Created: began},
		})
		for i := range count {
			task, on := cluster.ServiceTask(owner.Cluster, name, 1, i), filledNode((done+i)%nodes)
			id := fmt.Sprintf("%s-%d", name, i)
			f.put(prefix.Desired(on, task), &cluster.Desired{
				Task: task, Attempt: 1, UUID: id, Node: on, Owner: owner, Definition: def, Count: count, Priority: 500,
				OnDisconnect: cluster.DisconnectKeep, Placed: began, Plan: 1,
			})
			f.put(prefix.Observed(on, task), &cluster.Observed{
				Task: task, Attempt: 1, UUID: id, Node: on, Session: 1, State: cluster.StateRunning,
				Health:  cluster.HealthHealthy,
				Started: began, Containers: []cluster.ContainerStatus{
					{Name: "main", State: cluster.ContainerRunning, Started: began},
				},
			})
		}
	}
	return f.flush()
}

// filler writes records in large commits, until one fails.
type filler struct {
	ctx    context.Context //nolint:containedctx // it lasts as long as one call
	engine store.Engine
	groups []store.Group
	err    error
}

// filledAtOnce is how many records are written in one commit.
const filledAtOnce = 2000

func (f *filler) put(key string, record any) {
	if f.err != nil {
		return
	}
	value, err := store.Encode(record)
	if f.groups = append(f.groups, store.Group{Ops: []store.Op{{Key: key, Value: value}}}); err != nil ||
		len(f.groups) < filledAtOnce {
		f.err = err
		return
	}
	f.err = f.flush()
}

func (f *filler) flush() error {
	if f.err == nil && len(f.groups) > 0 {
		_, f.err = f.engine.Commit(f.ctx, f.groups)
		f.groups = f.groups[:0]
	}
	return f.err
}

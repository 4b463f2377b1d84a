package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// coalesce is how long an agent gathers what it has to report.
const coalesce = 20 * time.Millisecond

// fakeAgent is a node whose tasks start at once and run for ever.
type fakeAgent struct {
	name   string
	client *transport.Client
	count  *counts
	events chan cluster.Observed
}

func newAgent(s *server, i int, c *counts) *fakeAgent {
	// The address was the server's own answer; it is well formed.
	client, _ := transport.NewClient(transport.ClientConfig{Addresses: []string{s.address}, Token: s.token})
	return &fakeAgent{name: fmt.Sprintf("n%d", i), client: client, count: c, events: make(chan cluster.Observed, 1000)}
}

// run registers, follows the assignments and reports, until the context ends.
func (a *fakeAgent) run(ctx context.Context) error {
	defer a.client.Close()
	welcome, err := a.client.Register(ctx, transport.Registration{Node: a.name, Facts: cluster.Facts{
		CPU: 4000, Memory: 16 * cluster.GiB, Disk: cluster.TiB, Executors: []cluster.ExecutorFact{{Name: "process"}},
	}})
	if err != nil {
		return fmt.Errorf("register %s: %w", a.name, err)
	}
	a.count.ready.Add(1)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.follow(ctx, welcome.Session) })
	group.Go(func() error { return a.report(ctx, welcome) })
	return group.Wait()
}

func (a *fakeAgent) follow(ctx context.Context, session uint64) error {
	stream, err := a.client.Assignments(ctx, transport.AssignmentsRequest{Node: a.name, Session: session})
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	for {
		m, err := stream.Next(ctx)
		if err != nil {
			return err
		}
		d := m.Assignment
		if d == nil || d.Stop != nil {
			continue
		}
		a.count.assigned.Add(1)
		a.events <- cluster.Observed{Task: d.Task, Attempt: d.Attempt, UUID: d.UUID, State: cluster.StateStarting}
	}
}

// report sends what is to be told, gathered, and turns each task whose barrier was passed into a running one.
func (a *fakeAgent) report(ctx context.Context, w transport.Welcome) error {
	beat := time.NewTimer(time.Duration(w.Heartbeat))
	defer beat.Stop()
	var running []cluster.Observed
	for seq := uint64(1); ; seq++ {
		r := transport.Report{Node: a.name, Session: w.Session, Seq: seq, Tasks: running}
		if len(running) == 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-beat.C:
			case o := <-a.events:
				r.Tasks = append(r.Tasks, o)
			}
		}
		wait := time.After(coalesce)
	gather:
		for {
			select {
			case o := <-a.events:
				r.Tasks = append(r.Tasks, o)
			case <-wait:
				break gather
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		reply, err := a.client.Report(ctx, r)
		if err != nil {
			return fmt.Errorf("report of %s: %w", a.name, err)
		}
		for _, why := range reply.Refused {
			return fmt.Errorf("a report of %s was refused: %s (retry %v)", a.name, why.Message, why.Retry)
		}
		a.count.running.Add(int64(len(running)))
		running = started(r.Tasks)
		beat.Reset(time.Duration(reply.Heartbeat))
	}
}

// started returns the tasks whose barrier was just passed, as running.
func started(tasks []cluster.Observed) []cluster.Observed {
	var out []cluster.Observed
	for _, o := range tasks {
		if o.State == cluster.StateStarting {
			o.State, o.Started = cluster.StateRunning, time.Now()
			out = append(out, o)
		}
	}
	return out
}

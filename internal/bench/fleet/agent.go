package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/pki"
	"github.com/berthd/berth/internal/transport"
)

// coalesce is the time for which an agent collects changes before a report.
const coalesce = 20 * time.Millisecond

// fakeAgent is a node whose tasks start immediately and never end.
type fakeAgent struct {
	number int
	name   string
	rack   string
	client *transport.Client
	count  *counts
	events chan cluster.Observed
	// audience gets the tasks of this node if agents follow a service, and is nil otherwise.
	audience *audience
	// ending is that of the server.
	ending <-chan struct{}
}

// entering is how many agents connect concurrently, and entries how often each tries.
const (
	entering = 16
	entries  = 5
)

// startAgent runs an agent with a certificate of its own, until the context ends. It waits for its turn to connect.
func startAgent(ctx context.Context, s *server, i int, c *counts, door chan struct{}) error {
	a := &fakeAgent{
		number: i, name: fmt.Sprintf("n%d", i), rack: fmt.Sprintf("r%d", i%racks), count: c,
		events: make(chan cluster.Observed, 64),
	}
	a.audience, a.ending = s.audience, s.ending
	door <- struct{}{}
	welcome, err := a.enter(ctx, s)
	<-door
	if err != nil {
		return err
	}
	defer a.client.Close()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.follow(ctx, welcome.Session) })
	group.Go(func() error { return a.report(ctx, welcome) })
	if a.audience != nil {
		group.Go(func() error { return a.audience.listen(ctx, a, welcome.Session, s.curtain) })
	}
	return group.Wait()
}

// enter connects and registers.
func (a *fakeAgent) enter(ctx context.Context, s *server) (transport.Welcome, error) {
	config := transport.ClientConfig{Addresses: []string{s.agents}, Dial: s.dial}
	var err error
	if len(s.carriers) > 0 {
		config.HTTP = s.carriers[a.number%len(s.carriers)]
	} else if config.TLS, err = certified(s.authority, pki.Subject{Role: cluster.RoleNode, Name: a.name}); err != nil {
		return transport.Welcome{}, err
	}
	if a.client, err = transport.NewClient(config); err != nil {
		return transport.Welcome{}, err
	}
	own := facts
	own.Labels = cluster.Labels{"rack": a.rack}
	ask := transport.Registration{Node: a.name, Facts: own}
	var welcome transport.Welcome
	for range entries { // a server that many enter together may be slow
		welcome, err = a.client.Register(ctx, ask)
		if over, ok := errors.AsType[*transport.SessionError](err); ok {
			ask.Previous = over.Newest // the answer was lost
		} else if err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("register %s: %w", a.name, err)
	}
	return welcome, err
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
		if m.Synced {
			a.count.ready.Add(1)
		}
		d := m.Assignment
		if a.ending != nil && d != nil && d.Ended() {
			a.events <- cluster.Observed{
				Task: d.Task, Attempt: d.Attempt, UUID: d.UUID, State: cluster.StateSucceeded, Gone: true,
			}
		}
		if d == nil || d.Stop != nil {
			continue
		}
		a.count.assigned.Add(1)
		o := cluster.Observed{Task: d.Task, Attempt: d.Attempt, UUID: d.UUID, State: cluster.StateStarting}
		if !d.Batch() { // it passes no barrier: the program starts immediately and is reported as running
			o.State, o.Started = cluster.StateRunning, time.Now()
			select {
			case a.count.services <- d.Owner.Name:
			default: // nobody measures
			}
		}
		if a.audience != nil {
			o.Health = cluster.HealthHealthy
			a.audience.runs(o, a)
		}
		a.events <- o
	}
}

// report sends the collected changes, and sets each task that passed its barrier to running.
func (a *fakeAgent) report(ctx context.Context, w transport.Welcome) error {
	beat := time.NewTimer(time.Duration(w.Heartbeat))
	defer beat.Stop()
	var running, held []cluster.Observed
	ending := a.ending
	for seq := uint64(1); ; seq++ {
		r := transport.Report{Node: a.name, Session: w.Session, Seq: seq, Tasks: running}
		if len(running) == 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-beat.C:
			case o := <-a.events:
				r.Tasks = append(r.Tasks, o)
			case <-ending:
				r.Tasks, held, ending = endBrief(held), nil, nil
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
		reply, err := a.sendReport(ctx, r)
		if err != nil {
			return err
		}
		for _, why := range reply.Refused {
			return fmt.Errorf("a report of %s was refused: %s (retry %v)", a.name, why.Message, why.Retry)
		}
		for i := range r.Tasks {
			switch r.Tasks[i].State {
			case cluster.StateRunning:
				a.count.running.Add(1)
			case cluster.StateSucceeded:
				if !r.Tasks[i].Gone {
					a.count.ended.Add(1)
				}
			}
		}
		running = started(r.Tasks)
		switch {
		case a.ending == nil:
		case ending == nil:
			running = endBrief(running)
		default: // they are held once they are reported as running
			held = append(held, running...)
		}
		beat.Reset(time.Duration(reply.Heartbeat))
	}
}

// sendReport sends a report, and repeats it if the server could not accept it.
func (a *fakeAgent) sendReport(ctx context.Context, r transport.Report) (transport.ReportReply, error) {
	for {
		reply, err := a.client.Report(ctx, r)
		if err == nil || ctx.Err() != nil {
			return reply, err
		}
		if errors.Is(err, transport.ErrSession) || errors.Is(err, transport.ErrElsewhere) {
			return reply, fmt.Errorf("report of %s: %w", a.name, err)
		}
		a.count.again.Add(1)
		_ = pause.For(ctx, 100*time.Millisecond)
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

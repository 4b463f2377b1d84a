package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/transport"
)

const (
	// followed is the service that all agents follow.
	followed = "web"
	// again is the least time between two requests of an agent.
	again = 25 * time.Millisecond
)

// audience is what agents learned of a service while tasks of it became healthy and failed.
type audience struct {
	bytes   atomic.Int64 // that came to the agents, TLS and all else included
	answers atomic.Int64
	knowing atomic.Int64 // agents with an answer for the service

	mu     sync.Mutex
	tasks  map[string]cluster.Observed // as they run, with their agents
	homes  map[string]*fakeAgent
	began  map[string]time.Time // of a task's last change
	delays []time.Duration
}

// follow measures the cost of sending agents the addresses of a service. All agents follow one service. Its tasks, on
// some of the nodes, become healthy and fail by the reports of their agents.
func follow(ctx context.Context, o options, stdout, stderr io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	s, err := startServer(ctx, o, stderr)
	if err != nil {
		return err
	}
	defer s.stop()
	a := &audience{tasks: map[string]cluster.Observed{}, homes: map[string]*fakeAgent{}, began: map[string]time.Time{}}
	s.dial = a.dial
	s.audience = a
	var count counts
	group, fleet := errgroup.WithContext(ctx)
	door := make(chan struct{}, entering)
	for i := range o.agents {
		group.Go(func() error { return startAgent(fleet, s, i, &count, door) })
	}
	result := make(chan error, 1)
	go func() { result <- a.measure(ctx, s, o, &count, stdout) }()
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

// measure has the service run, lets all agents follow it, and prints a row for each pace of changes.
func (a *audience) measure(ctx context.Context, s *server, o options, c *counts, out io.Writer) error {
	if err := until(ctx, func() bool { return c.ready.Load() == int64(o.agents) }); err != nil {
		return fmt.Errorf("%d of %d agents are ready: %w", c.ready.Load(), o.agents, err)
	}
	web, err := client.New(client.Config{Addr: s.address, Token: s.token})
	if err != nil {
		return err
	}
	defer web.Close()
	if err := new(load).prepare(ctx, web); err != nil {
		return err
	}
	raw, err := json.Marshal(
		&cluster.Service{Name: followed, Definition: cluster.Ref{Name: "noop", Version: 1}, Count: o.tasks})
	if err != nil {
		return err
	}
	if _, err := web.Apply(ctx,
		api.ApplyRequest{Objects: []api.Object{{Kind: cluster.KindService, Spec: raw}}}); err != nil {
		return err
	}
	if err := until(ctx, func() bool { return c.running.Load() >= int64(o.tasks) }); err != nil {
		return fmt.Errorf("%d of %d tasks run: %w", c.running.Load(), o.tasks, err)
	}
	_ = pause.For(ctx, 10*time.Second) // heartbeats reach their longest interval
	before, err := s.figures(ctx, web, o, true)
	if err != nil {
		return err
	}
	often := time.Second / time.Duration(o.rate)
	alone, err := a.row(ctx, s, o, often, 10*o.rate) // what changes cost anyway
	if err != nil {
		return err
	}
	close(s.curtain)
	if err := until(ctx, func() bool { return a.knowing.Load() == int64(o.agents) }); err != nil {
		return fmt.Errorf("%d of %d agents received the service: %w", a.knowing.Load(), o.agents, err)
	}
	_ = pause.For(ctx, 10*time.Second)
	after, err := s.figures(ctx, web, o, true)
	if err != nil {
		return err
	}
	if err := s.profile(ctx, web, o); err != nil {
		return err
	}
	single, err := a.row(ctx, s, o, 5*time.Second, 10)
	if err != nil {
		return err
	}
	many, err := a.row(ctx, s, o, often, 20*o.rate)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d agents follow a service of %d tasks: %.1f KiB of the server's heap and %.1f KiB of "+
		"its memory that is not files for each\n\n",
		o.agents, o.tasks, (after.heap-before.heap)/1024/float64(o.agents),
		float64(after.anonymous-before.anonymous)/1024/float64(o.agents))
	fmt.Fprintf(out, "| agents | tasks | changes/s | server CPU, ms a change | bytes a change and agent | "+
		"answers a change and agent | known after, ms: median | 99 of 100 |\n")
	fmt.Fprintf(out, "|---|---|---|---|---|---|---|---|\n%s%s%s", alone, single, many)
	return s.profiled()
}

// row has tasks change, one each while, and returns what that cost as a row of the table.
func (a *audience) row(ctx context.Context, s *server, o options, each time.Duration, changes int) (string, error) {
	cpu, bytes := s.atRest(ctx, a)
	a.reset()
	used, began := process(s.cmd.Process.Pid).cpu(), time.Now()
	for i := range changes {
		a.change(i)
		_ = pause.For(ctx, time.Until(began.Add(time.Duration(i+1)*each)))
	}
	_ = pause.For(ctx, 15*time.Second) // the last agents get the change
	took, n := time.Since(began).Seconds(), float64(changes)
	used = process(s.cmd.Process.Pid).cpu() - used - cpu*took
	a.mu.Lock()
	defer a.mu.Unlock()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if len(a.delays) == 0 {
		return fmt.Sprintf("| none of %d | %d | %.1f | %.0f | | | | |\n", o.agents, o.tasks, 1/each.Seconds(),
			used*1000/n), nil
	}
	slices.Sort(a.delays)
	ms := func(share int) float64 { return float64(a.delays[len(a.delays)*share/100].Microseconds()) / 1000 }
	return fmt.Sprintf("| %d | %d | %.1f | %.0f | %.0f | %.2f | %.0f | %.0f |\n", o.agents, o.tasks, 1/each.Seconds(),
		used*1000/n,
		(float64(a.bytes.Load())-bytes*took)/n/float64(o.agents), float64(a.answers.Load())/n/float64(o.agents), ms(50),
		ms(99)), nil
}

// atRest returns what the server uses and agents read each second while nothing changes: CPU seconds, bytes.
func (s *server) atRest(ctx context.Context, a *audience) (cpu, bytes float64) {
	const span = 10 * time.Second
	a.reset()
	before := process(s.cmd.Process.Pid).cpu()
	_ = pause.For(ctx, span)
	return (process(s.cmd.Process.Pid).cpu() - before) / span.Seconds(), float64(a.bytes.Load()) / span.Seconds()
}

func (a *audience) reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.delays = a.delays[:0]
	a.bytes.Store(0)
	a.answers.Store(0)
}

// runs notes a task that runs at an agent.
func (a *audience) runs(o cluster.Observed, at *fakeAgent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tasks[string(o.Task)], a.homes[string(o.Task)] = o, at
}

// change has the next task fail, or be healthy again: each in turn.
func (a *audience) change(number int) {
	a.mu.Lock()
	names := make([]string, 0, len(a.tasks))
	for name := range a.tasks { // order-free: sorted next
		names = append(names, name)
	}
	slices.Sort(names)
	name := names[number%len(names)]
	o := a.tasks[name]
	if o.Health = cluster.HealthHealthy; a.tasks[name].Health == o.Health {
		o.Health = cluster.HealthFailing
	}
	o.Since = time.Now()
	a.tasks[name], a.began[name] = o, time.Now()
	home := a.homes[name]
	a.mu.Unlock()
	home.events <- o
}

// learned records the new state of an agent in place of its old one.
func (a *audience) learned(was, is []transport.ServiceAddress) {
	now := time.Now()
	a.answers.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	changed := func(task string) {
		if began, ok := a.began[task]; ok {
			a.delays = append(a.delays, now.Sub(began))
		}
	}
	for len(was) > 0 || len(is) > 0 {
		switch {
		case len(is) == 0 || len(was) > 0 && was[0].Task < is[0].Task:
			changed(was[0].Task)
			was = was[1:]
		case len(was) == 0 || is[0].Task < was[0].Task:
			changed(is[0].Task)
			is = is[1:]
		default:
			was, is = was[1:], is[1:]
		}
	}
}

// listen is an agent that follows the service, as agents do, once the curtain rises.
func (a *audience) listen(ctx context.Context, agent *fakeAgent, session uint64, curtain <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-curtain:
	}
	r := transport.AddressesRequest{
		Node: agent.name, Session: session,
		Services:    []transport.ServiceRequest{{Cluster: "default", Service: followed}},
		Differences: true,
	}
	var known []transport.ServiceAddress
	for ctx.Err() == nil {
		reply, err := agent.client.Addresses(ctx, r)
		if err != nil {
			return fmt.Errorf("%s requests addresses: %w", agent.name, err)
		}
		for i := range reply.Services {
			list, err := reply.Services[i].Onto(r.Services[0].Stamp, known)
			if err != nil {
				return err
			}
			if r.Services[0].Stamp == "" {
				a.knowing.Add(1)
			}
			a.learned(known, list)
			known, r.Services[0].Stamp = list, reply.Services[i].Stamp
		}
		_ = pause.For(ctx, again)
	}
	return ctx.Err()
}

// dial connects to the server and counts what comes.
func (a *audience) dial(ctx context.Context, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(address, "https://"))
	if err != nil {
		return nil, err
	}
	return &countingConn{c, &a.bytes}, nil
}

type countingConn struct {
	net.Conn
	bytes *atomic.Int64
}

func (c *countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

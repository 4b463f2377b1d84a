package whatif_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/apiserver"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/dispatcher"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/transport"
	"github.com/berthd/berth/internal/whatif"
)

// fleet is a real domain, in the time of a bubble: an engine, a complete server, and nodes whose tasks take time.
type fleet struct {
	t        *testing.T
	ctx      context.Context
	tables   *store.Tables
	plane    *controlplane.Plane
	dispatch *dispatcher.Dispatcher
	client   *client.Client
	machines map[string]*machine
	running  sync.WaitGroup
	changed  atomic.Int64 // last write, as Unix time in nanoseconds
	// stepTime returns how long a task takes to start, to become healthy, or to stop.
	stepTime func() time.Duration
}

// newFleet starts a server. The caller ends it by its context and then waits for running.
func newFleet(t *testing.T, ctx context.Context, takes func() time.Duration) *fleet {
	t.Helper()
	f := &fleet{t: t, ctx: ctx, machines: map[string]*machine{}, stepTime: takes}
	engine := memory.New(memory.Options{Observe: func(changes []store.Change, _ uint64, _ bool) {
		for i := range changes {
			if strings.HasPrefix(changes[i].Key, store.DefaultPrefix) {
				f.changed.Store(time.Now().UnixNano())
			}
		}
	}})
	began := time.Now()
	clock := func() time.Duration { return time.Since(began) + time.Hour }
	log := slog.New(slog.DiscardHandler)
	f.tables = store.NewTables(store.TablesConfig{Engine: engine, Logger: log})
	f.plane = controlplane.New(controlplane.Config{
		Engine: engine, Tables: f.tables, Domain: cluster.DefaultDomain, Server: "s1",
		Random: rand.New(rand.NewPCG(1, 1)), Logger: log,
		Now: time.Now, Clock: clock,
	})
	f.dispatch = dispatcher.New(
		dispatcher.Config{Engine: engine, Tables: f.tables, Logger: log, Clock: clock})
	server := apiserver.New(apiserver.Config{
		Engine: engine, Tables: f.tables, Leader: views.LeaderOn(views.OnlyDefault(f.plane)), Log: log, Clock: clock,
		Permissions: cluster.Permissions(),
	})
	var err error
	if f.client, err = client.New(client.Config{Addr: "unix:///real", Transport: whatif.Direct(server)}); err != nil {
		t.Fatal(err)
	}
	f.running.Go(func() { _ = f.tables.Run(ctx) })
	f.running.Go(func() { _ = f.plane.Run(ctx) })
	f.running.Go(func() { _ = f.dispatch.Run(ctx) })
	return f
}

// applyChange makes a change in the real domain.
func (f *fleet) applyChange(c api.SimulateChange) {
	f.t.Helper()
	var err error
	switch {
	case c.AddNodes != nil:
		n := c.AddNodes
		facts := cluster.Facts{
			OS: "linux", Arch: "amd64", CPU: 8000, Memory: 16 * cluster.GiB, Disk: 100 * cluster.GiB,
			Executors: []cluster.ExecutorFact{{Name: "containerd"}},
		}
		facts.Labels = n.Labels // its own labels; in the prediction the operator sets them
		for _, g := range n.Devices {
			for i := range g.Count {
				facts.Devices = append(facts.Devices,
					cluster.Device{ID: fmt.Sprintf("%s-00-%03d", g.Type, i), Type: g.Type, Model: g.Model, Numa: -1})
			}
		}
		f.machines[n.Name] = f.start(n.Name, facts)
	case c.RemoveNode != "":
		f.machines[c.RemoveNode].stop()
		delete(f.machines, c.RemoveNode)
		_, err = f.client.ForgetNode(f.ctx, c.RemoveNode, true, client.Condition{})
	default:
		err = whatif.Ask(f.ctx, f.client, &c)
	}
	if err != nil {
		f.t.Fatalf("%s for real: %v", whatif.Describe(&c), err)
	}
}

// settle waits until nothing was written for a while.
func (f *fleet) settle() {
	const quiet, limit = 30 * time.Second, 2 * time.Hour
	for end := time.Now().Add(limit); time.Now().Before(end); {
		time.Sleep(time.Second) // in-bubble: each fleet is in one
		if time.Since(time.Unix(0, f.changed.Load())) > quiet && !whatif.Rolling(f.tables.Snapshot()) {
			return
		}
	}
	f.t.Fatal("the fleet did not converge")
}

// machine is a node whose tasks follow their orders, after a while.
type machine struct {
	f       *fleet
	name    string
	facts   cluster.Facts
	session uint64
	seq     uint64
	asks    int
	tasks   map[string]*cluster.Observed
	mu      sync.Mutex
	sending sync.Mutex // held while a report is sent, so that reports keep their order
	ending  map[string]bool
	stop    func()
}

// start starts a machine.
func (f *fleet) start(name string, facts cluster.Facts) *machine {
	m := &machine{f: f, name: name, facts: facts, tasks: map[string]*cluster.Observed{}, ending: map[string]bool{}}
	ctx, cancel := context.WithCancel(f.ctx)
	done := make(chan struct{})
	f.running.Go(func() {
		defer close(done)
		m.live(ctx)
	})
	m.stop = func() {
		cancel()
		<-done
	}
	return m
}

func (m *machine) live(ctx context.Context) {
	welcome, err := m.f.dispatch.Register(ctx,
		transport.Registration{Wire: transport.WireVersion, Node: m.name, Facts: m.facts})
	if err != nil {
		return
	}
	m.session = welcome.Session
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		_ = m.f.dispatch.Assign(ctx, transport.AssignmentsRequest{Node: m.name, Session: m.session},
			func(ms []transport.Message) error {
				for _, message := range ms {
					if a := message.Assignment; a != nil {
						running.Go(func() { m.act(ctx, a) })
					}
				}
				return nil
			})
	})
	beat := time.NewTicker(time.Duration(welcome.Heartbeat))
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			m.report(ctx, nil)
		}
	}
}

// pause waits for the time of one step.
func (m *machine) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(m.f.stepTime()): // in-bubble: each fleet is in one
	}
}

func (m *machine) report(ctx context.Context, o *cluster.Observed) bool {
	m.sending.Lock()
	defer m.sending.Unlock()
	m.mu.Lock()
	m.seq++
	r := transport.Report{Node: m.name, Session: m.session, Seq: m.seq}
	if o != nil {
		o.Since = time.Now()
		kept := *o
		m.tasks[o.UUID] = &kept
		r.Tasks = []cluster.Observed{*o}
	}
	m.mu.Unlock()
	reply, err := m.f.dispatch.Report(ctx, r)
	if err != nil && ctx.Err() == nil && !errors.Is(err, transport.ErrSession) {
		m.f.t.Errorf("report of %s: %v", m.name, err)
	}
	return err == nil && (o == nil || reply.Refused[o.UUID].Message == "")
}

// act carries out an assignment.
func (m *machine) act(ctx context.Context, a *transport.Assignment) {
	m.mu.Lock()
	o := cluster.Observed{
		Task: a.Task, Attempt: a.Attempt, UUID: a.UUID, Definition: a.Definition, Count: a.Count, Ports: a.Ports,
		Devices: a.Devices, Plan: a.Plan,
	}
	known := m.tasks[a.UUID]
	if known != nil {
		o = *known
	}
	begins := known == nil && a.Stop == nil
	if begins {
		m.tasks[a.UUID] = &o
	}
	asks := a.Stop != nil && a.Stop.Class == cluster.StopVoluntary && o.State == cluster.StateRunning && !a.Ended()
	if asks && o.Ask == "" {
		m.asks++
		o.Ask = fmt.Sprintf("%d.%d", m.session, m.asks)
		m.mu.Unlock()
		m.report(ctx, &o)
		return
	}
	waits := asks && o.Ask != a.Stop.Permit
	ends := a.Stop != nil && !a.Ended() && !waits && !m.ending[a.UUID] && !o.State.Terminal()
	if ends {
		m.ending[a.UUID] = true
	}
	m.mu.Unlock()
	switch {
	case a.Ended():
		if !o.State.Terminal() {
			o.State = cluster.StateCancelled
		}
		o.Gone = true
		m.report(ctx, &o)
	case ends:
		m.pause(ctx)
		o.State, o.Reason, o.Finished = cluster.StateCancelled, a.Stop.Reason, time.Now()
		m.report(ctx, &o)
	case begins:
		m.begin(ctx, o, a.Batch())
	}
}

func (m *machine) begin(ctx context.Context, o cluster.Observed, batch bool) {
	ended := func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return ctx.Err() != nil || m.ending[o.UUID] || m.tasks[o.UUID].State.Terminal()
	}
	o.State = cluster.StatePreparing
	m.report(ctx, &o)
	m.pause(ctx)
	if batch && !ended() {
		o.State = cluster.StateStarting
		if !m.report(ctx, &o) {
			return
		}
	}
	if ended() {
		return
	}
	o.State, o.Started = cluster.StateRunning, time.Now()
	if !batch {
		o.Health = cluster.HealthUnknown
	}
	m.report(ctx, &o)
	if batch {
		return
	}
	m.pause(ctx)
	if ended() {
		return
	}
	m.mu.Lock()
	o.Ask = m.tasks[o.UUID].Ask
	m.mu.Unlock()
	o.Health = cluster.HealthHealthy
	m.report(ctx, &o)
}

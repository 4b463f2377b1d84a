package controlplane_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/dispatcher"
	"github.com/berthd/berth/internal/logic/scheduler/window"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/transport"
)

const p = store.Prefix(store.DefaultPrefix)

// world is one server with its plane and dispatcher over a memory engine, and scripted agents.
type world struct {
	t      *testing.T
	engine *memory.Engine
	// faulty, unless nil, is the handle that the server uses in place of engine.
	faulty store.Engine
	// meanwhile, unless nil, runs at each check of until.
	meanwhile func()
	// metrics, unless nil, receives counts of the planes that start from then on.
	metrics controlplane.Metrics
	// measurer answers the plane's questions to the outside; nil for none.
	measurer controlplane.Measurer
	// keepDefinitions is the plane's KeepDefinitions.
	keepDefinitions time.Duration
	// window is the plane's Window, from the next start on.
	window window.Sizes
	// skew is how far the server's wall clock is ahead, in nanoseconds.
	skew    atomic.Int64
	began   time.Time
	server  *server                // the server for the test
	current atomic.Pointer[server] // the server for agents
	agents  []*agent
}

// server is one run of a server.
type server struct {
	tables   *store.Tables
	plane    *controlplane.Plane
	dispatch *dispatcher.Dispatcher
	ctx      context.Context
	stop     func()
}

func inWorld(t *testing.T, do func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, engine: memory.New(memory.Options{}), began: time.Now()}
		w.start()
		do(t, w)
		w.compareViews()
		for _, a := range w.agents {
			a.kill()
		}
		w.server.stop()
	})
}

// wall is the server's wall clock.
func (w *world) wall() time.Time { return time.Now().Round(0).Add(time.Duration(w.skew.Load())) }

// setAhead sets the server's wall clock, so that it is ahead of the bubble's time.
func (w *world) setAhead(by time.Duration) { w.skew.Store(int64(by)) }

// start begins a run of the server.
func (w *world) start() {
	w.t.Helper()
	log := slog.New(slog.DiscardHandler)
	clock := func() time.Duration { return time.Since(w.began) }
	var engine store.Engine = w.engine
	if w.faulty != nil {
		engine = w.faulty
	}
	s := &server{tables: store.NewTables(store.TablesConfig{Engine: engine, Logger: log})}
	s.plane = controlplane.New(controlplane.Config{
		Engine: engine, Tables: s.tables, Domain: cluster.DefaultDomain, Server: "s1",
		Random: rand.New(rand.NewPCG(1, 1)), Logger: log, Now: w.wall, Clock: clock,
		Measurer: w.measurer, KeepDefinitions: w.keepDefinitions, Metrics: w.metrics, Window: w.window,
	})
	s.dispatch = dispatcher.New(dispatcher.Config{
		Engine: engine, Tables: s.tables, Logger: log, Clock: clock,
	})
	ctx, cancel := context.WithCancel(w.t.Context())
	s.ctx = ctx
	w.server = s
	w.current.Store(s) // the hooks of a faulty engine read it
	var running sync.WaitGroup
	running.Go(func() { _ = s.tables.Run(ctx) })
	running.Go(func() { _ = s.plane.Run(ctx) })
	running.Go(func() { _ = s.dispatch.Run(ctx) })
	s.stop = func() {
		cancel()
		running.Wait()
	}
}

// put writes a user's record.
func (w *world) put(key string, record any) {
	w.t.Helper()
	value, err := store.Encode(record)
	if err != nil {
		w.t.Fatal(err)
	}
	w.raw(key, value)
}

func (w *world) remove(key string) {
	w.t.Helper()
	if _, err := w.engine.Commit(w.t.Context(),
		[]store.Group{{Ops: []store.Op{{Key: key, Delete: true}}}}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) raw(key string, value []byte) {
	w.t.Helper()
	if _, err := w.engine.Commit(w.t.Context(),
		[]store.Group{{Ops: []store.Op{{Key: key, Value: value}}}}); err != nil {
		w.t.Fatal(err)
	}
}

// until waits for a state of the tables, in the bubble's time.
func (w *world) until(limit time.Duration, what string, holds func(s *store.Snapshot) bool) {
	w.t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) { // in-bubble: inWorld makes one
		if w.meanwhile != nil {
			w.meanwhile()
		}
		s := w.server.tables.Snapshot()
		if holds(s) {
			return
		}
		if time.Now().After(end) {
			for e := range s.Nodes() {
				w.t.Logf("%+v", *e.Value)
			}
			w.t.Logf("waiting: %+v", w.server.plane.Reasons(0))
			for row := range s.AllAttempts() {
				w.t.Logf("%s/%d on %s: desired %+v observed %+v outcome %+v", row.Task, row.Number, row.Node,
					row.Desired, row.Observed, row.Outcome)
			}
			w.t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// agent is a node whose tasks obey: a service's runs and is healthy, a job's succeeds.
type agent struct {
	w    *world
	name string
	// state survives the agent's death.
	session uint64
	tasks   map[string]*cluster.Observed
	// fails says which attempts of a job's tasks fail.
	fails func(task cluster.TaskID, attempt int) bool
	// sick says which definitions never become healthy in a service's task.
	sick func(cluster.Ref) bool
	// rejects, unless nil, returns why the node cannot take a task, or "".
	rejects func(cluster.TaskID) string
	// endless says that a job's tasks run until they are stopped.
	endless bool
	// behind is how far the node's wall clock is behind.
	behind time.Duration
	// lingers returns how long a task takes to stop; nil for no time. The agent does nothing else meanwhile.
	lingers func(cluster.TaskID) time.Duration
	// takes is how long a service's task takes to become healthy; 0 means half a second.
	takes time.Duration
	// stats, unless nil, returns the machine's statistics for the next report.
	stats func() *cluster.NodeStats
	// devices are those of its machine beside CPU, memory and disk.
	devices []cluster.Device
	// images and volumes are those of its machine.
	images, volumes []string
	// effects counts the starts of user code, by UUID.
	effects map[string]int
	// token is the highest that the agent has seen.
	token cluster.Token
	stop  func()
	// keepsEnded says that the agent does nothing when it is told that an attempt has ended.
	keepsEnded bool
}

// sees keeps the highest token (P1.6).
func (a *agent) sees(t cluster.Token) {
	if t.Compare(a.token) > 0 {
		a.token = t
	}
}

// node starts an agent after the given functions have changed it.
func (w *world) node(name string, is ...func(*agent)) *agent {
	a := &agent{w: w, name: name, tasks: map[string]*cluster.Observed{}, effects: map[string]int{}}
	for _, change := range is {
		change(a)
	}
	w.agents = append(w.agents, a)
	a.run()
	return a
}

func (a *agent) kill() {
	if a.stop != nil {
		a.stop()
		a.stop = nil
	}
}

// run starts the agent.
func (a *agent) run() {
	ctx, cancel := context.WithCancel(a.w.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			a.live(ctx)
			sleep(ctx, 100*time.Millisecond)
		}
	})
	a.stop = func() {
		cancel()
		running.Wait()
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d): // in-bubble: inWorld makes one
	}
}

// live runs one session.
func (a *agent) live(ctx context.Context) {
	server := a.w.current.Load()
	d := server.dispatch
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer context.AfterFunc(server.ctx, end)() // a call ends with its connection
	var full []cluster.Observed
	for _, o := range a.tasks {
		full = append(full, *o)
	}
	welcome, err := d.Register(ctx, transport.Registration{
		Wire: transport.WireVersion, Node: a.name, Previous: a.session, Token: a.token, Tasks: full,
		Facts: cluster.Facts{
			CPU: 4000, Memory: 8 * cluster.GiB, Disk: 100 * cluster.GiB,
			Executors: []cluster.ExecutorFact{{Name: "containerd"}},
			Devices:   a.devices, Images: a.images, Volumes: a.volumes,
		},
	})
	if err != nil {
		if over, ok := errors.AsType[*transport.SessionError](err); ok {
			a.session = over.Newest
		}
		return
	}
	a.session = welcome.Session
	a.sees(welcome.Token)
	ctx, cancel := context.WithCancel(ctx)
	messages := make(chan transport.Message, 1000)
	var running sync.WaitGroup
	running.Go(func() {
		defer cancel()
		_ = d.Assign(ctx, transport.AssignmentsRequest{Node: a.name, Session: a.session},
			func(ms []transport.Message) error {
				for _, m := range ms {
					select {
					case messages <- m:
					case <-ctx.Done():
					}
				}
				return nil
			})
	})
	seq := uint64(0)
	report := func(o *cluster.Observed) bool {
		seq++
		var tasks []cluster.Observed
		if o != nil {
			o.Since = time.Now()
			a.tasks[o.UUID] = o
			tasks = append(tasks, *o)
		}
		r := transport.Report{Node: a.name, Session: a.session, Seq: seq, Tasks: tasks}
		if a.stats != nil {
			r.Stats = a.stats()
		}
		reply, err := d.Report(ctx, r)
		if errors.Is(err, transport.ErrSession) {
			cancel()
		}
		a.sees(reply.Token)
		return err == nil && (o == nil || reply.Refused[o.UUID].Message == "")
	}
	beat := time.NewTicker(time.Duration(welcome.Heartbeat))
	defer beat.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-beat.C:
			report(nil)
		case m := <-messages:
			if m.Assignment != nil {
				a.act(ctx, m.Assignment, report)
			}
			if m.Forget != nil && (a.tasks[m.Forget.UUID] == nil || a.tasks[m.Forget.UUID].State.Terminal()) {
				delete(a.tasks, m.Forget.UUID) // else it continues, as with a real agent
			}
		}
	}
	running.Wait()
}

// act carries out an assignment immediately.
func (a *agent) act(ctx context.Context, as *transport.Assignment, report func(*cluster.Observed) bool) {
	o := a.tasks[as.UUID]
	if o == nil {
		o = &cluster.Observed{
			Task: as.Task, Attempt: as.Attempt, UUID: as.UUID, Definition: as.Definition, Count: as.Count,
			Ports: as.Ports, Plan: as.Plan,
		}
	}
	a.sees(as.Token)
	c := *o
	switch {
	case as.Ended() && a.keepsEnded:
	case as.Ended():
		if !c.State.Terminal() {
			c.State = cluster.StateCancelled
		}
		c.Gone = true
		report(&c)
	case as.Stop != nil && !c.State.Terminal():
		if a.lingers != nil {
			sleep(ctx, a.lingers(as.Task))
		}
		c.State, c.Reason, c.Finished = cluster.StateCancelled, as.Stop.Reason, time.Now()
		report(&c)
	case c.State == "" && a.rejects != nil && a.rejects(as.Task) != "":
		c.State, c.Reason, c.Message = cluster.StateRejected, cluster.ReasonPortTaken, a.rejects(as.Task)
		c.Finished = time.Now()
		report(&c)
	case (c.State == "" || c.State == cluster.StateStarting) && as.Batch():
		// a barrier without an answer is requested again
		a.runBatch(ctx, as, &c, report)
	case c.State == "":
		c.State, c.Health, c.Started = cluster.StateRunning, cluster.HealthUnknown, time.Now()
		a.effects[as.UUID]++
		report(&c)
		sleep(ctx, cmp.Or(a.takes, 500*time.Millisecond))
		h := c
		h.Health = cluster.HealthHealthy
		if a.sick != nil && a.sick(as.Definition) {
			h.Health = cluster.HealthFailing
		}
		report(&h)
	}
}

func (a *agent) runBatch(ctx context.Context, as *transport.Assignment, c *cluster.Observed,
	report func(*cluster.Observed) bool,
) {
	c.State = cluster.StateStarting
	if !report(c) {
		return
	}
	r := *c
	r.State, r.Started = cluster.StateRunning, time.Now().Add(-a.behind)
	a.effects[as.UUID]++
	report(&r)
	if a.endless {
		return
	}
	sleep(ctx, 200*time.Millisecond)
	e := r
	e.State, e.Finished = cluster.StateSucceeded, time.Now()
	if a.fails != nil && a.fails(as.Task, as.Attempt) {
		e.State, e.Reason, e.Message = cluster.StateFailed, cluster.ReasonExit, "exit code 1"
	}
	report(&e)
}

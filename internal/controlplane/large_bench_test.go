package controlplane

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/internal/boottime"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/election"
	"github.com/berthd/berth/internal/store/memory"
)

// The size of a domain in which a restarted server has to place again within five seconds.
const (
	largeNodes    = 10_000
	largeServices = 100
	largeTasks    = 1000 // tasks of each service
)

// fillLarge stores a domain of that size in which every task runs. Each service needs one more task.
func fillLarge(b *testing.B, e *memory.Engine) {
	b.Helper()
	prefix := store.Prefix(store.DefaultPrefix)
	var groups []store.Group
	put := func(key string, record any) {
		value, err := store.Encode(record)
		if err != nil {
			b.Fatal(err)
		}
		groups = append(groups, store.Group{Ops: []store.Op{{Key: key, Value: value}}})
		if len(groups) == 500 {
			commit(b, e, groups)
			groups = nil
		}
	}
	began := time.Now().UTC()
	def := cluster.Ref{Name: "d", Version: 1}
	put(prefix.Definition(def), &cluster.TaskDefinition{Name: "d", Version: 1, Containers: []cluster.Container{{
		Name: "main", Image: "i", Resources: cluster.Resources{CPU: 100, Memory: 64 * cluster.MiB},
	}}})
	node := func(i int) string { return fmt.Sprintf("n%05d", i) }
	for i := range largeNodes {
		name := node(i)
		put(prefix.Node(name), &cluster.Node{
			Name: name, State: cluster.NodeReady, Since: began, Domain: cluster.DefaultDomain, Generation: 1,
			Session: 1,
		})
		put(prefix.NodeStatus(name),
			&cluster.NodeStatus{Name: name, Session: 1, Registered: began, Synced: true, Facts: cluster.Facts{
				Hostname: name, OS: "linux", Arch: "amd64", CPU: 16_000, Memory: 64 * cluster.GiB,
				Disk:      500 * cluster.GiB,
				Executors: []cluster.ExecutorFact{{Name: "containerd"}},
			}})
	}
	for s := range largeServices {
		name := fmt.Sprintf("web%03d", s)
		owner := cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: name}
		put(prefix.Service("c", name), &cluster.Service{
			Cluster: "c", Name: name, Count: largeTasks + 1, Definition: def, Priority: 500,
			OnDisconnect: cluster.DisconnectKeep, Lifespan: cluster.Lifespan{Generation: 1, Created: began},
		})
		for i := range largeTasks {
			task, on := cluster.ServiceTask("c", name, 1, i), node((s*largeTasks+i)%largeNodes)
			id := fmt.Sprintf("%s-%d", name, i)
			put(prefix.Desired(on, task), &cluster.Desired{
				Task: task, Attempt: 1, UUID: id, Node: on, Owner: owner, Definition: def, Count: largeTasks,
				Priority:     500,
				OnDisconnect: cluster.DisconnectKeep, Placed: began, Plan: 1, Ports: map[string]int{"http": 21_000 + s},
			})
			put(prefix.Observed(on, task), &cluster.Observed{
				Task: task, Attempt: 1, UUID: id, Node: on, Session: 1, State: cluster.StateRunning,
				Health:  cluster.HealthHealthy,
				Started: began, Containers: []cluster.ContainerStatus{
					{Name: "main", State: cluster.ContainerRunning, Started: began},
				},
			})
		}
	}
	commit(b, e, groups)
}

func commit(b *testing.B, e *memory.Engine, groups []store.Group) {
	b.Helper()
	if _, err := e.Commit(b.Context(), groups); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRestart measures how long a restarted server takes until it places again in a domain of 10,000 nodes and
// 100,000 tasks. It reports the time to load the tables, and the time from there to the first plan. The plane adds only
// the second one to a takeover.
func BenchmarkRestart(b *testing.B) {
	log := slog.New(slog.DiscardHandler)
	var load, plan time.Duration
	for b.Loop() {
		b.StopTimer()
		engine := memory.New(memory.Options{})
		fillLarge(b, engine)
		b.StartTimer()
		tables := store.NewTables(store.TablesConfig{Engine: engine, Logger: log})
		plane := New(Config{
			Engine: engine, Tables: tables, Domain: cluster.DefaultDomain, Server: "s1",
			Random: rand.New(rand.NewPCG(1, 1)),
			Logger: log, Now: time.Now, Clock: boottime.Now,
		})
		ctx, cancel := context.WithCancel(b.Context())
		began := time.Now()
		var running sync.WaitGroup
		running.Go(func() { _ = tables.Run(ctx) })
		<-tables.Synced()
		for i := range largeNodes { // pulses from the other servers, or from the agents themselves
			tables.SetPulse(fmt.Sprintf("n%05d", i),
				cluster.Pulse{Session: 1, Seq: 1, At: boottime.Now(), Next: time.Minute})
		}
		loaded := time.Now()
		before := tables.Snapshot().LastPlan(0)
		running.Go(func() { _ = plane.Run(ctx) })
		for tables.Snapshot().LastPlan(0) == before {
			<-tables.Changed(tables.Snapshot().Revision())
		}
		load, plan = load+loaded.Sub(began), plan+time.Since(loaded)
		b.StopTimer()
		cancel()
		running.Wait()
		b.StartTimer()
	}
	b.ReportMetric(float64(load.Milliseconds())/float64(b.N), "load-ms")
	b.ReportMetric(float64(plan.Milliseconds())/float64(b.N), "plan-ms")
}

// BenchmarkTakeover measures how long a standby server takes to place in that domain once it leads. It reports the
// elapsed time, and the CPU time of all work meanwhile, which other load of the machine disturbs less. learn-ms is the
// time of the first full learning, before the takeover.
func BenchmarkTakeover(b *testing.B) {
	log := slog.New(slog.DiscardHandler)
	engine := memory.New(memory.Options{})
	fillLarge(b, engine)
	tables := store.NewTables(store.TablesConfig{Engine: engine, Logger: log})
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = tables.Run(ctx) })
	<-tables.Synced()
	for i := range largeNodes { // pulses from the other servers
		tables.SetPulse(fmt.Sprintf("n%05d", i), cluster.Pulse{Session: 1, Seq: 1, At: boottime.Now(), Next: time.Hour})
	}
	var learn, clock, spent time.Duration
	n := 0
	for b.Loop() {
		b.StopTimer()
		n++
		plane := New(Config{
			Engine: engine, Tables: tables, Domain: cluster.DefaultDomain, Server: fmt.Sprintf("s%d", n),
			Random: rand.New(rand.NewPCG(1, 1)), Logger: log, Now: time.Now, Clock: boottime.Now,
		})
		l := newLoop(plane, false)
		began := time.Now()
		l.prepare(tables.Snapshot(), l.follow.Take())
		learn += time.Since(began)
		grow(b, engine, tables)
		before := tables.Snapshot().LastPlan(0)
		candidate := election.NewCandidate(election.CandidateConfig{
			Engine: engine, Prefix: tables.Prefix(), Domain: cluster.DefaultDomain, Server: plane.config.Server,
			Random: plane.config.Random,
		})
		term, resign := context.WithCancel(ctx)
		leadership, err := candidate.Campaign(term)
		if err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		b.StartTimer()
		began, cpu := time.Now(), cpuTime(b)
		var leading sync.WaitGroup
		leading.Go(func() { _ = plane.lead(leadership, l) })
		for tables.Snapshot().LastPlan(0) == before {
			<-tables.Changed(tables.Snapshot().Revision())
		}
		clock, spent = clock+time.Since(began), spent+cpuTime(b)-cpu
		b.StopTimer()
		resign()
		leading.Wait()
		l.follow.Close()
		b.StartTimer()
	}
	for unit, took := range map[string]time.Duration{"learn-ms": learn, "plan-ms": clock, "plan-cpu-ms": spent} {
		b.ReportMetric(float64(took.Microseconds())/1000/float64(n), unit)
	}
	cancel()
	running.Wait()
}

// grow adds one to the count of a service.
func grow(b *testing.B, e *memory.Engine, tables *store.Tables) {
	b.Helper()
	s, _ := tables.Snapshot().Service("c", "web050")
	grown := *s.Value
	grown.Count++
	value, err := store.Encode(&grown)
	if err != nil {
		b.Fatal(err)
	}
	commit(b, e, []store.Group{{Ops: []store.Op{{Key: s.Key, Value: value}}}})
	if _, err := tables.Settled(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

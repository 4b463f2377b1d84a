package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/agent/devices"
	"github.com/berthd/berth/internal/agent/facts"
	"github.com/berthd/berth/internal/agent/machine"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/agent/secrets"
	"github.com/berthd/berth/internal/agent/task"
	"github.com/berthd/berth/internal/agent/usage"
	"github.com/berthd/berth/internal/agent/volumes"
	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/discovery"
	"github.com/berthd/berth/internal/discovery/fake"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/transport"
)

// world is a server, an executor and an agent that starts and stops.
type world struct {
	t        *testing.T
	server   *server
	executor *testExecutor
	// attach, unless nil, returns the executor of a later run of the agent instead of the test executor.
	retired []executor.Executor // of the next run
	attach  func() executor.Executor
	dir     string
	boot    string
	taken   map[int]bool // ports
	probe   func(context.Context, *cluster.Check, map[string]int) error
	began   time.Time
	cpus    []int
	// The folders that the node lends.
	hostVolumes []volumes.HostVolume
	hostPaths   []string
	// secretsDir, unless empty, is the folder in memory for secrets.
	secretsDir string
	// networks, unless nil, are the machine's networks, which outlive the agents.
	networks machine.Networks
	// without switches clauses off: the server grants no permits, unless a test is about them.
	without clause.Set
	// discovery, unless nil, is the system in which the agent registers tasks.
	discovery *fake.System
	// metrics, unless nil, counts what happens on the node.
	metrics node.Metrics
	// source, unless nil, extends the server by further interfaces.
	source Source

	mu       sync.Mutex
	devices  []devices.Device // nil: the agent does not search
	stats    cluster.NodeStats
	scarcity facts.Scarcity
	answers  func(port int, m cluster.RequestCounter) (float64, error) // a task's request counter

	agent  *Agent
	cancel context.CancelFunc
	done   chan error
	rev    uint64
}

func newWorld(t *testing.T) *world {
	return &world{
		t: t, server: newServer(), executor: newTestExecutor(), dir: t.TempDir(), boot: "boot-1", taken: map[int]bool{},
		began: time.Now(), scarcity: facts.Scarcity{Stall: -1},
		hostPaths: []string{"/"}, without: clause.Permit,
	}
}

// inWorld runs a test in a bubble with a running agent.
func inWorld(t *testing.T, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.start()
		defer w.stop()
		test(w)
	})
}

func (w *world) config() Config {
	boot := w.boot
	var exec executor.Executor = w.executor
	if w.attach != nil {
		exec = w.attach()
	}
	var source Source = w.server
	if w.source != nil {
		source = w.source
	}
	var driver discovery.Driver
	if w.discovery != nil {
		driver = fake.New(w.discovery, "me")
	}
	return Config{
		Discovery: driver, DiscoveryOwner: "me", Metrics: w.metrics,
		Name: "n1", DataDir: w.dir, Without: w.without, Source: source,
		Executors: []executor.Executor{exec}, Retired: w.retired,
		Clock: ClockConfig{
			Boot:   func() time.Duration { return time.Hour + time.Since(w.began) },
			Random: func() float64 { return 0.5 },
		},
		Machine: machine.Config{
			Facts: func(string) (cluster.Facts, error) {
				return cluster.Facts{
					Hostname: "n1", BootID: boot, Address: "10.0.0.1", CPU: 4000, Memory: 8 * cluster.GiB,
				}, nil
			},
			Devices: func(context.Context) ([]devices.Device, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.devices, nil
			},
			Networks: w.networks,
		},
		Measure: usage.Config{
			Stats: func(string) (cluster.NodeStats, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.stats, nil
			},
			Scarcity: func() (facts.Scarcity, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.scarcity, nil
			},
			Requests: func(_ context.Context, port int, m cluster.RequestCounter) (float64, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.answers(port, m)
			},
		},
		Checks: task.CheckConfig{
			PortFree: func(_ context.Context, p int) error {
				if w.taken[p] {
					return fmt.Errorf("port %d is used by pid 812 (nginx), which listens at 0.0.0.0:%[1]d over TCP", p)
				}
				return nil
			},
			Probe: w.probe,
		},
		CPUs: w.cpus, Volumes: volumes.Config{Host: w.hostVolumes, Paths: w.hostPaths},
		Secrets: secrets.Config{Dir: w.secretsDir},
	}
}

func (w *world) start() {
	a, err := New(w.config())
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	w.agent = a
	w.cancel, w.done = cancel, make(chan error, 1)
	go func() { w.done <- a.Run(ctx) }()
	synctest.Wait()
}

// stop ends the agent like a crash: running tasks are not stopped.
func (w *world) stop() {
	w.cancel()
	if err := <-w.done; err != nil {
		w.t.Errorf("the agent ended with %v", err)
	}
}

func (w *world) restart() {
	w.stop()
	w.start()
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	time.Sleep(d) // in-bubble: every world is in one
	synctest.Wait()
}

// definition returns a definition with the named containers.
func definition(name string, containers ...string) *cluster.TaskDefinition {
	d := &cluster.TaskDefinition{Name: name, Version: 1}
	for _, c := range containers {
		d.Containers = append(d.Containers, cluster.Container{Name: c, Command: []string{"run"}})
	}
	return d
}

func (w *world) desired(uuid string, d *cluster.TaskDefinition, kind cluster.Kind) cluster.Desired {
	id := cluster.ServiceTask("default", "web", 1, 0)
	if kind == cluster.KindJob {
		id = cluster.JobTask("default", "web", 1, "main", 0)
	}
	return cluster.Desired{
		Task: id, Attempt: 1, UUID: uuid, Node: "n1",
		Owner:      cluster.OwnerRef{Kind: kind, Cluster: "default", Name: "web"},
		Definition: d.Ref(), Count: 1,
		Token: cluster.Token{Generation: 1, Incarnation: 1, Epoch: 1},
	}
}

// assign sends the definition and the assignment, and lets the agent act.
func (w *world) assign(d cluster.Desired, def *cluster.TaskDefinition) {
	w.rev++
	w.server.say(transport.Message{Definition: def},
		transport.Message{Assignment: &transport.Assignment{Desired: d, Revision: w.rev}})
	w.pass(50 * time.Millisecond)
}

func (w *world) service(uuid string, def *cluster.TaskDefinition) cluster.Desired {
	d := w.desired(uuid, def, cluster.KindService)
	w.assign(d, def)
	return d
}

func (w *world) batch(uuid string, def *cluster.TaskDefinition) cluster.Desired {
	d := w.desired(uuid, def, cluster.KindJob)
	w.assign(d, def)
	return d
}

// sendAgain sends an assignment again with a newer revision.
func (w *world) sendAgain(d cluster.Desired) {
	w.rev++
	w.server.say(transport.Message{Assignment: &transport.Assignment{Desired: d, Revision: w.rev}})
	w.pass(50 * time.Millisecond)
}

func (w *world) stopTask(d cluster.Desired, ended bool) {
	d.Stop = &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonDeleted, Ended: ended}
	w.sendAgain(d)
}

// want compares the newest report.
func (w *world) want(uuid string, state cluster.State, reason cluster.ReasonCode) cluster.Observed {
	w.t.Helper()
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	o, ok := w.server.seen[uuid]
	if !ok || o.State != state || o.Reason != reason {
		w.t.Errorf("%s is %q (%q, %s), want %q (%q)\nstory: %v", uuid, o.State, o.Reason, o.Message, state, reason,
			w.server.states[uuid])
	}
	return o
}

func (w *world) wantStates(uuid string, want ...string) {
	w.t.Helper()
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	if got := w.server.states[uuid]; !slices.Equal(got, want) {
		w.t.Errorf("story of %s\n got %q\nwant %q", uuid, got, want)
	}
}

func (w *world) wantEffects(want ...string) {
	w.t.Helper()
	w.executor.mu.Lock()
	defer w.executor.mu.Unlock()
	if !slices.Equal(w.executor.effects, want) {
		w.t.Errorf("programs were started %q, want %q", w.executor.effects, want)
	}
}

// ended waits until the agent has ended.
func (w *world) ended() error { return <-w.done }

package load_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
	"github.com/berthd/berth/test/load"
	"github.com/berthd/berth/test/netlab"
)

func TestMain(m *testing.M) { harness.Main(m) }

// Settings by the environment: how long, a seed that failed, and how many requests a second.
const (
	forVariable  = "BERTH_LOAD_FOR"
	seedVariable = "BERTH_LOAD_SEED"
	rateVariable = "BERTH_LOAD_RATE"
	// briefly is how long where the environment does not say: enough to see that the test itself works.
	briefly = 30 * time.Second
)

const (
	servers, agents = 3, 10
	most, fewest    = 100, 20 // tasks
	service         = "web"
	// settleLimit is how long a rollout, a drain or a change of the count may take, with a dead node in between.
	settleLimit = 6 * time.Minute
	// How long a task serves on after TERM, and how often it is looked at.
	drainTime, checkEvery = 3 * time.Second, 5 * time.Second
	// lingers is for how long one serves on before TERM, once it has left the addresses: on a machine that runs a whole
	// fleet whoever follows them may hear of it late.
	lingers = 3 * time.Second
)

// TestConstantLoad has a service of a hundred tasks on ten nodes answer requests while it is rolled out, drained,
// scaled, and while servers and whole nodes die. No request may fail but on a process that the test killed; no healthy
// task is given up below the minimum; every rollout ends complete; nothing grows.
func TestConstantLoad(t *testing.T) {
	length := lengthOf(t)
	seed := testkit.Setting(t, seedVariable, time.Now().UnixNano())
	t.Logf("%s=%v %s=%d", forVariable, length, seedVariable, seed)
	w := build(t, rand.New(rand.NewPCG(uint64(seed), 0)))
	w.start()

	traffic, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { w.traffic.Run(traffic) })
	running.Go(func() { w.memory.run(traffic, w) })
	until, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var rolling sync.WaitGroup
	rolling.Go(func() { w.roll(until, length) })
	w.disturb(until)
	rolling.Wait()
	if !t.Failed() {
		w.settle()
	}
	audited := time.Now()
	stop()
	running.Wait()
	w.judge(length, audited)
}

// lengthOf is how long the load lasts.
func lengthOf(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv(forVariable)
	if text == "" {
		return briefly
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		t.Fatalf("%s=%q: want a duration such as 5m", forVariable, text)
	}
	return d
}

// world is ten machines with a service, three with servers, and one that asks.
type world struct {
	*harness.Fleet
	t        *testing.T
	lab      *netlab.Lab
	random   *rand.Rand
	client   *client.Client
	recorder *load.Recorder
	traffic  *load.Traffic
	memory   *memory
	program  string
	servers  []*netlab.Host
	agents   []*netlab.Host

	mu       sync.Mutex
	version  int
	count    int
	kills    []load.Kill
	leasts   []load.Least
	did      map[string]int // what was done, and how often
	took     map[string]time.Duration
	rollouts []uint64 // generations that are complete
}

// build makes the network and the fleet in it; nothing runs yet.
func build(t *testing.T, random *rand.Rand) *world {
	t.Helper()
	testkit.NeedCommand(t, "nsenter")
	w := &world{
		t: t, random: random, lab: netlab.New(t), did: map[string]int{}, took: map[string]time.Duration{},
		memory: newMemory(),
	}
	for i := range servers {
		w.servers = append(w.servers, w.lab.Add(fmt.Sprintf("s%d", i+1)))
	}
	for i := range agents {
		w.agents = append(w.agents, w.lab.Add(fmt.Sprintf("n%d", i+1)))
	}
	asker := w.lab.Add("asker")
	listener, err := asker.Listen(net.JoinHostPort(asker.Address, "9000"))
	if err != nil {
		t.Fatal(err)
	}
	w.recorder = load.NewRecorder(listener)
	t.Cleanup(w.recorder.Close)
	w.Fleet = harness.NewFleet(t)
	w.program = harness.Program(t, w.Dir, "./test/load/task")
	w.Start(hosts(w.servers)...)
	for i, h := range hosts(w.agents) {
		w.Agent(h, "--address", w.agents[i].Address)
	}
	w.client = w.Client()
	w.traffic = load.New(load.Config{
		Client: w.Client(), Service: service, Port: "http", Dial: asker.Dial,
		Rate: int(testkit.Setting(t, rateVariable, 300)), Workers: 30,
		Random: rand.New(rand.NewPCG(random.Uint64(), 0)),
	})
	return w
}

// hosts are machines of the lab as the fleet takes them. "ip netns exec" would hide the control groups from them.
func hosts(all []*netlab.Host) (hosts []harness.Host) {
	for _, h := range all {
		hosts = append(hosts, harness.Host{
			Name: h.Name, Address: h.Address,
			Prefix: []string{"nsenter", "--net=/var/run/netns/" + h.Space},
		})
	}
	return hosts
}

// start runs the first version.
func (w *world) start() {
	w.t.Helper()
	w.count = most
	w.put(w.t.Context())
	began := time.Now()
	w.settle()
	w.note("first deployment", began)
}

// definition is what a version runs.
func (w *world) definition(version int) api.TaskDefinition {
	delay := cluster.Duration(lingers)
	return api.TaskDefinition{
		Name: service, Version: version,
		Containers: []cluster.Container{{
			Name: "main", Command: []string{w.program},
			Env: map[string]string{
				"VERSION": fmt.Sprint(version), "DRAIN": drainTime.String(), "RECORD": w.recorder.Address(),
				"GOMAXPROCS": "1",
			},
			Resources: cluster.Resources{CPU: 1, Memory: 48 << 20},
		}},
		Ports: []cluster.Port{{Name: "http"}},
		Checks: []cluster.Check{{
			Name: "answers", Type: cluster.CheckHTTP, Port: "http", Path: "/healthz",
			InitialDelay: cluster.Duration(200 * time.Millisecond), Interval: cluster.Duration(checkEvery),
			Timeout: cluster.Duration(4 * time.Second),
		}},
		Grace: cluster.Duration(15 * time.Second), ShutdownDelay: &delay,
	}
}

// spec is the service as it is asked for.
func (w *world) spec() api.Service {
	tenth := cluster.Portion{N: 10, Percent: true}
	least := cluster.Portion{N: 90, Percent: true}
	return api.Service{
		Cluster: cluster.DefaultCluster, Name: service, Definition: cluster.Ref{Name: service, Version: w.version},
		Count:  w.count,
		Update: cluster.Update{MaxSurge: &tenth, MinHealthy: &least, Parallelism: &tenth},
	}
}

// put writes the next version, until a server takes it, and returns the service's generation.
func (w *world) put(ctx context.Context) uint64 {
	w.mu.Lock()
	w.version++
	version := w.version
	w.mu.Unlock()
	w.try(ctx, "write a version", func(ctx context.Context) error {
		if _, err := w.client.PutDefinition(ctx, w.definition(version)); err != nil {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock() // the count does not change meanwhile
		spec := w.spec()
		_, err := w.client.PutService(ctx, spec, client.Condition{})
		if err == nil && len(w.leasts) == 0 {
			w.bound(time.Now())
		}
		return err
	})
	var generation uint64
	w.try(ctx, "read the service", func(ctx context.Context) error {
		v, err := w.client.Service(ctx, cluster.DefaultCluster, service)
		generation = v.Generation
		return err
	})
	return generation
}

// bound notes the minimum from a time on. w.mu is held.
func (w *world) bound(from time.Time) {
	spec := w.spec()
	w.leasts = append(w.leasts, load.Least{At: from, N: spec.Update.Limits(spec.Count, false).MinHealthy})
}

// try asks until a server does it: which of them leads may just change.
func (w *world) try(ctx context.Context, what string, do func(context.Context) error) {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	err := testkit.Poll(limit, func() error {
		each, cancel := context.WithTimeout(limit, 10*time.Second)
		defer cancel()
		return do(each)
	})
	if err != nil && w.t.Context().Err() == nil {
		w.t.Errorf("%s: %v", what, err)
	}
}

// note remembers that something was done, and how long that took at most.
func (w *world) note(what string, began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.did[what]++
	w.took[what] = max(w.took[what], time.Since(began))
	w.t.Logf("%s: %s took %v", time.Now().Format(time.TimeOnly), what, time.Since(began).Round(time.Millisecond))
}

// settle waits until all tasks that are wanted are healthy, of the newest version.
func (w *world) settle() {
	w.t.Helper()
	limit, cancel := context.WithTimeout(w.t.Context(), settleLimit)
	defer cancel()
	if err := testkit.Poll(limit, func() error { return w.settled(limit, 0) }); err != nil {
		w.t.Errorf("after %v: %v", settleLimit, err)
	}
}

// settled returns nil once the service is as it is asked for, and the rollout of a generation (0: whatever the newest
// is) is complete.
func (w *world) settled(ctx context.Context, generation uint64) error {
	each, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	v, err := w.client.Service(each, cluster.DefaultCluster, service)
	s := v.Status
	switch {
	case err != nil:
		return err
	case generation != 0 && v.Generation != generation:
		w.t.Errorf("generation %d was asked for, and %d is there: %s", generation, v.Generation, s.Message)
		return nil
	case s.Rollout == cluster.RolloutComplete && s.Healthy == s.Desired && s.Updated == s.Desired:
		return nil
	case s.Rollout.Ended() && s.Rollout != cluster.RolloutComplete:
		w.t.Errorf("the rollout of generation %d is %s: %s", v.Generation, s.Rollout, s.Message)
		return nil
	}
	return fmt.Errorf("the service is not settled: %d of %d healthy, %d updated, %s, rollout %q: %s", s.Healthy,
		s.Desired, s.Updated, s.State, s.Rollout, s.Message)
}

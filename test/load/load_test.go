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
	// briefly is the default duration: enough to check that the test itself works.
	briefly = 30 * time.Second
)

const (
	servers, agents = 3, 10
	most, fewest    = 100, 20 // tasks
	service         = "web"
	// settleLimit is how long a rollout, a drain or a change of the count may take, with a dead node in between.
	settleLimit = 6 * time.Minute
	// The time for which a task serves after TERM, and the interval of its check.
	drainTime, checkEvery = 3 * time.Second, 5 * time.Second
	// lingers is the shutdown delay: the time for which a task serves after it left the addresses, before TERM. On a
	// machine with a whole fleet, a follower of the addresses may receive the change late.
	lingers = 3 * time.Second
)

// TestConstantLoad sends requests to a service of a hundred tasks on ten nodes. Meanwhile it rolls out, drains and
// scales, and kills servers and whole nodes. Only requests to a killed process may fail. No healthy task is stopped
// below the minimum, every rollout completes, and no memory grows.
func TestConstantLoad(t *testing.T) {
	length := lengthOf(t)
	seed := testkit.Setting(t, seedVariable, time.Now().UnixNano())
	t.Logf("%s=%v %s=%d", forVariable, length, seedVariable, seed)
	fl := build(t, rand.New(rand.NewPCG(uint64(seed), 0)))
	fl.start()

	traffic, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { fl.traffic.Run(traffic) })
	running.Go(func() { fl.memory.run(traffic, fl) })
	until, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var rolling sync.WaitGroup
	rolling.Go(func() { fl.roll(until, length) })
	fl.disturb(until)
	rolling.Wait()
	if !t.Failed() {
		fl.settle()
	}
	audited := time.Now()
	stop()
	running.Wait()
	fl.judge(length, audited)
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

// loadFleet is ten machines with a service, three with servers, and one with the client.
type loadFleet struct {
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
	rollouts []uint64 // generations whose rollout is complete
}

// build makes the network and the fleet in it; nothing runs yet.
func build(t *testing.T, random *rand.Rand) *loadFleet {
	t.Helper()
	testkit.NeedCommand(t, "nsenter")
	fl := &loadFleet{
		t: t, random: random, lab: netlab.New(t), did: map[string]int{}, took: map[string]time.Duration{},
		memory: newMemory(),
	}
	for i := range servers {
		fl.servers = append(fl.servers, fl.lab.Add(fmt.Sprintf("s%d", i+1)))
	}
	for i := range agents {
		fl.agents = append(fl.agents, fl.lab.Add(fmt.Sprintf("n%d", i+1)))
	}
	asker := fl.lab.Add("asker")
	listener, err := asker.Listen(net.JoinHostPort(asker.Address, "9000"))
	if err != nil {
		t.Fatal(err)
	}
	fl.recorder = load.NewRecorder(listener)
	t.Cleanup(fl.recorder.Close)
	fl.Fleet = harness.NewFleet(t)
	fl.StoreHost = hosts([]*netlab.Host{fl.lab.Add("store")})[0]
	fl.program = harness.Program(t, fl.Dir, "./test/load/task")
	fl.Start(hosts(fl.servers)...)
	for i, h := range hosts(fl.agents) {
		fl.Agent(h, "--address", fl.agents[i].Address)
	}
	fl.client = fl.Client()
	fl.traffic = load.New(load.Config{
		Client: fl.Client(), Service: service, Port: "http", Dial: asker.Dial,
		Rate: int(testkit.Setting(t, rateVariable, 300)), Workers: 30,
		Random: rand.New(rand.NewPCG(random.Uint64(), 0)),
	})
	return fl
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
func (fl *loadFleet) start() {
	fl.t.Helper()
	fl.count = most
	fl.put(fl.t.Context())
	began := time.Now()
	fl.settle()
	fl.note("first deployment", began)
}

// definition returns the task definition of a version.
func (fl *loadFleet) definition(version int) api.TaskDefinition {
	delay := cluster.Duration(lingers)
	return api.TaskDefinition{
		Name: service, Version: version,
		Containers: []cluster.Container{{
			Name: "main", Command: []string{fl.program},
			Env: map[string]string{
				"VERSION": fmt.Sprint(version), "DRAIN": drainTime.String(), "RECORD": fl.recorder.Address(),
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

// spec returns the service as requested.
func (fl *loadFleet) spec() api.Service {
	tenth := cluster.Portion{N: 10, Percent: true}
	least := cluster.Portion{N: 90, Percent: true}
	return api.Service{
		Cluster: cluster.DefaultCluster, Name: service, Definition: cluster.Ref{Name: service, Version: fl.version},
		Count:  fl.count,
		Update: cluster.Update{MaxSurge: &tenth, MinHealthy: &least, Parallelism: &tenth},
	}
}

// put writes the next version, until a server takes it, and returns the service's generation.
func (fl *loadFleet) put(ctx context.Context) uint64 {
	fl.mu.Lock()
	fl.version++
	version := fl.version
	fl.mu.Unlock()
	fl.try(ctx, "write a version", func(ctx context.Context) error {
		if _, err := fl.client.PutDefinition(ctx, fl.definition(version)); err != nil {
			return err
		}
		fl.mu.Lock()
		defer fl.mu.Unlock() // the count does not change meanwhile
		spec := fl.spec()
		_, err := fl.client.PutService(ctx, spec, client.Condition{})
		if err == nil && len(fl.leasts) == 0 {
			fl.bound(time.Now())
		}
		return err
	})
	var generation uint64
	fl.try(ctx, "read the service", func(ctx context.Context) error {
		v, err := fl.client.Service(ctx, cluster.DefaultCluster, service)
		generation = v.Generation
		return err
	})
	return generation
}

// bound notes the minimum from a time on. w.mu is held.
func (fl *loadFleet) bound(from time.Time) {
	spec := fl.spec()
	fl.leasts = append(fl.leasts, load.Least{At: from, N: spec.Update.Limits(spec.Count, false).MinHealthy})
}

// try repeats a request until a server carries it out, since the leader may be changing.
func (fl *loadFleet) try(ctx context.Context, what string, do func(context.Context) error) {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	err := testkit.Poll(limit, func() error {
		each, cancel := context.WithTimeout(limit, 10*time.Second)
		defer cancel()
		return do(each)
	})
	if err != nil && fl.t.Context().Err() == nil {
		fl.t.Errorf("%s: %v", what, err)
	}
}

// note remembers that something was done, and how long that took at most.
func (fl *loadFleet) note(what string, began time.Time) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.did[what]++
	fl.took[what] = max(fl.took[what], time.Since(began))
	fl.t.Logf("%s: %s took %v", time.Now().Format(time.TimeOnly), what, time.Since(began).Round(time.Millisecond))
}

// settle waits until all wanted tasks are healthy and of the newest version.
func (fl *loadFleet) settle() {
	fl.t.Helper()
	limit, cancel := context.WithTimeout(fl.t.Context(), settleLimit)
	defer cancel()
	if err := testkit.Poll(limit, func() error { return fl.settled(limit, 0) }); err != nil {
		fl.t.Errorf("after %v: %v", settleLimit, err)
	}
}

// settled returns nil once the service is as requested and the rollout of a generation (0: the newest) is complete.
func (fl *loadFleet) settled(ctx context.Context, generation uint64) error {
	each, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	v, err := fl.client.Service(each, cluster.DefaultCluster, service)
	s := v.Status
	switch {
	case err != nil:
		return err
	case generation != 0 && v.Generation != generation:
		fl.t.Errorf("want generation %d, got %d: %s", generation, v.Generation, s.Message)
		return nil
	case s.Rollout == cluster.RolloutComplete && s.Healthy == s.Desired && s.Updated == s.Desired:
		return nil
	case s.Rollout.Ended() && s.Rollout != cluster.RolloutComplete:
		fl.t.Errorf("the rollout of generation %d is %s: %s", v.Generation, s.Rollout, s.Message)
		return nil
	}
	return fmt.Errorf("the service is not settled: %d of %d healthy, %d updated, %s, rollout %q: %s", s.Healthy,
		s.Desired, s.Updated, s.State, s.Rollout, s.Message)
}

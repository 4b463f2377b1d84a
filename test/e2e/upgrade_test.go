package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/test/harness"
	"github.com/berthd/berth/test/history"
)

// ticking is a service whose tasks print a line at their start, and then wait.
const ticking = `
kind: TaskDefinition
name: ticking
version: 1
containers:
  - name: main
    command: [sh, -c, 'echo "$BERTH_TASK $BERTH_ATTEMPT_ID" >>%[1]s; while :; do sleep 1; done']
    resources: {cpu: 10m, memory: 16MiB}
min_healthy_time: 100ms
grace: 1s
---
kind: Service
name: ticking
definition: ticking@1
count: %[2]d
`

// upgrade is a fleet whose builds change under load.
type upgrade struct {
	*harness.Fleet
	*testing.T
	previous string // the binary
	begun    string // the file that tasks begin in
	rolled   int    // the newest version of the service hello
	tasks    []api.TaskView
	writes   *writes
	history  *history.Recorder
	quiet    func() // ends the history
}

// TestUpgrade replaces the servers of a fleet of the previous build one by one, then its agents, and goes back.
// Meanwhile clients write and read through all servers, and tasks run. No acknowledged write is lost, the API's history
// is linearizable, and no task is disturbed.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	u := beginUpgrade(t)

	// Up: servers first.
	for _, s := range u.Servers {
		u.replace(s, "")
	}
	u.Berth("server", "members", "-o", "wide").Want(t, 0, "RECORDS", fmt.Sprintf("1-%d", store.RecordVersion))
	u.Berth("run", u.Fleet.Write("pool.yaml", "kind: Pool\nname: gpu\nstrategy: spread\n")).Want(t, 0, "pool/gpu")
	u.Berth("pool", "ls").Want(t, 0, "gpu", "spread")
	// Agents of the previous build work with servers of this one: begin, read, run in, stop.
	u.exercise()
	for _, a := range u.Agents {
		u.restart(a, "")
	}
	u.exercise()

	// Downgrade: the previous build reads the records of this build. One agent is downgraded first, as documented. The
	// other agent is newer than the servers for a while.
	u.restart(u.Agents[0], u.previous)
	for _, s := range u.Servers {
		u.replace(s, u.previous)
	}
	u.exercise()
	u.restart(u.Agents[1], u.previous)
	u.exercise()
	u.check()
}

// beginUpgrade starts three servers and two agents of the previous build, tasks, and clients.
func beginUpgrade(t *testing.T) *upgrade {
	t.Helper()
	u := &upgrade{
		Fleet: harness.NewFleet(t), T: t, previous: harness.Previous(t, "testdata/previous-commit"),
		begun: filepath.Join(t.TempDir(), "begun"),
	}
	u.Program = u.previous
	hosts := harness.Loopback(5)
	u.Start(hosts[:3]...)
	u.Agent(hosts[3])
	u.Agent(hosts[4])
	u.Berth("run", u.Fleet.Write("ticking.yaml", fmt.Sprintf(ticking, u.begun, 4))).Want(t, 0, "4/4")
	u.tasks = running(t, u.Site, "ticking", 4)

	u.writes = beginWrites(u.Fleet, t)
	var clients []*client.Client
	for _, s := range u.Servers {
		clients = append(clients, s.Client())
	}
	u.history = history.New(history.Config{
		Servers: clients, Workers: 4, Pause: 100 * time.Millisecond, CallTimeout: 4 * time.Second,
		Random: rand.New(rand.NewPCG(rand.Uint64(), 0)),
	})
	if err := u.history.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { u.history.Run(ctx) })
	u.quiet = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(u.quiet)
	return u
}

// replace ends a server and starts it again with another binary; empty is the one that is tested.
func (u *upgrade) replace(s *harness.Server, program string) {
	u.Helper()
	if code := s.Terminate(); code != 0 {
		u.Errorf("the server ended with exit code %d:\n%s", code, s.Output())
	}
	u.writes.more(u.Fleet)
	u.Program = program
	s.Start()
	u.Voters(len(u.Servers))
	for _, a := range u.Agents {
		u.NodeIs(a.Name, cluster.NodeReady)
	}
	u.writes.more(u.Fleet)
	samePids(u.T, u.tasks, running(u.T, u.Site, "ticking", len(u.tasks)))
}

// restart ends an agent and starts it again with another binary.
func (u *upgrade) restart(a *harness.Agent, program string) {
	u.Helper()
	was := u.session(a)
	if code := a.Terminate(); code != 0 {
		u.Errorf("the agent ended with exit code %d:\n%s", code, a.Output())
	}
	u.Program = program
	a.Begin()
	u.Eventually(soon, func() error {
		if !a.Alive() {
			u.Fatalf("the agent ended:\n%s", a.Output())
		}
		if now := u.session(a); now <= was {
			return fmt.Errorf("%s has session %d still", a.Name, now)
		}
		return nil
	})
	u.NodeIs(a.Name, cluster.NodeReady)
	samePids(u.T, u.tasks, running(u.T, u.Site, "ticking", len(u.tasks)))
}

// session returns the session of an agent.
func (u *upgrade) session(a *harness.Agent) uint64 {
	u.Helper()
	n, err := u.Client().Node(u.Context(), a.Name)
	if err != nil {
		u.Fatal(err)
	}
	return n.Session
}

// exercise uses all features that need both servers and agents.
func (u *upgrade) exercise() {
	u.Helper()
	u.Berth("scale", "service/ticking", "6").Want(u.T, 0)
	six := running(u.T, u.Site, "ticking", 6)
	samePids(u.T, u.tasks, six)
	for _, s := range u.Servers {
		u.Eventually(soon, func() error { // the servers exchange the places of nodes once a second
			if r := s.Berth("exec", "ticking.1.5", "--", "sh", "-c", "exit 4"); r.Code != 4 {
				return fmt.Errorf("want exit code 4:\n%v", r)
			}
			return nil
		})
	}
	u.Berth("scale", "service/ticking", "4").Want(u.T, 0)
	u.rolled++ // a rollout gives up one task for another, in each way that stops are granted
	u.Berth("run", u.Fleet.Write("hello.yaml", fmt.Sprintf(hello, u.rolled, 2))).Want(u.T, 0, "2/2")
	samePids(u.T, u.tasks, running(u.T, u.Site, "ticking", 4))
}

// check ends the clients and judges what they saw, and that each task began once.
func (u *upgrade) check() {
	u.Helper()
	u.quiet()
	u.writes.check(u.T)
	if v := u.history.Check(time.Minute); !v.Linearizable {
		u.Errorf("the API's history is %v", v)
	} else {
		u.Logf("history: %v", v)
	}
	samePids(u.T, u.tasks, running(u.T, u.Site, "ticking", 4))
	begun := map[string]int{}
	for line := range strings.Lines(readFile(u.T, u.begun)) {
		begun[strings.TrimSpace(line)]++
	}
	for _, task := range u.tasks {
		if who := string(task.ID) + " " + task.UUID; begun[who] != 1 {
			u.Errorf("%s began %d times", who, begun[who])
		}
	}
	for who, n := range begun {
		if n != 1 {
			u.Errorf("%s began %d times", who, n)
		}
	}
}

// TestOlderThanTheStore starts a server on a store with records of a newer build, and writes such a record under a
// running server. The server ends with a message, and decides nothing.
func TestOlderThanTheStore(t *testing.T) {
	t.Parallel()
	at := startEtcd(t)
	f := harness.NewFleet(t)
	hosts := harness.Loopback(2)
	server := f.Init(hosts[0]).Start("--store", at)
	f.Agent(hosts[1])
	f.Berth("run", f.Write("v1.yaml", fmt.Sprintf(hello, 1, 2))).Want(t, 0, "2/2")
	before := running(t, f.Site, "hello", 2)

	etcd, err := clientv3.New(
		clientv3.Config{Endpoints: []string{strings.Replace(at, "etcd://", "http://", 1)}, DialTimeout: soon})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	key := store.Prefix(store.DefaultPrefix).Service("default", "hello")
	was, err := etcd.Get(t.Context(), key)
	if err != nil || len(was.Kvs) != 1 {
		t.Fatalf("read the service: %v %v", was, err)
	}
	value := string(was.Kvs[0].Value)
	version := func(v int) string { return fmt.Sprintf(`"v":%d`, v) }
	newer := strings.Replace(strings.Replace(value, version(store.RecordVersion), version(store.RecordVersion+1), 1),
		`"count":2`, `"count":0`, 1)
	put := func(value string) {
		t.Helper()
		if _, err := etcd.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	put(newer)
	for _, when := range []string{"while it runs", "at its start"} {
		if code := server.Exit(soon); code != 2 {
			t.Errorf("%s: the server ended with exit code %d", when, code)
		}
		for _, want := range []string{
			"service/default/hello: the record has version", "a newer build wrote it",
			"Start the newer version",
		} {
			if !strings.Contains(server.Output(), want) {
				t.Errorf("%s: want %q:\n%s", when, want, server.Output())
			}
		}
		server.Begin("--store", at)
	}
	if code := server.Exit(soon); code != 2 {
		t.Errorf("the server ended with exit code %d", code)
	}
	put(value)
	server.Start("--store", at)
	f.NodeIs("n1", cluster.NodeReady)
	samePids(t, before, running(t, f.Site, "hello", 2))
}

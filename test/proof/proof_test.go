// Package proof_test injects each fault of Berth's guarantees into a real control plane, and checks the guarantees.
// Three servers and four agents run in network namespaces, each a machine of its own. Each run injects one fault during
// jobs with effects and writes through all servers, and ends it. It then demands that all acknowledged writes exist and
// that the API's history is linearizable. Each task of a job has left its effect exactly once. The service has the same
// processes as before. The state converges to the requested one.
package proof_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
	"github.com/berthd/berth/test/history"
	"github.com/berthd/berth/test/netlab"
)

func TestMain(m *testing.M) { harness.Main(m) }

// Settings by the environment: how many runs, the seed of all of them, and the faults to choose from, by their names
// with commas between them.
const (
	runsVariable   = "BERTH_PROOF_RUNS"
	seedVariable   = "BERTH_PROOF_SEED"
	faultsVariable = "BERTH_PROOF_FAULTS"
)

const (
	servers, agents = 3, 4
	// standingTasks is the number of service tasks that run all the time. Each run adds a job. Each task of the job
	// takes up to three seconds.
	standingTasks, jobTasks = 8, 40
	// settleLimit is how long all may take to come right once the fault is over.
	settleLimit = 2 * time.Minute
	// diskSize is the size of the separate disk of one server: room for its log, and little more.
	diskSize = 768 << 20
)

const standing = `
kind: TaskDefinition
name: standing
version: 1
containers:
  - name: main
    command: [sh, -c, 'while :; do sleep 1000; done']
    resources: {cpu: 1m, memory: 8MiB}
min_healthy_time: 100ms
grace: 100ms
---
kind: Service
name: standing
definition: standing@1
count: %d
`

// Each attempt writes one line with one write to a file that is opened to append.
const job = `
kind: TaskDefinition
name: effects
version: 1
containers:
  - name: main
    command: [sh, -c, 'echo "$BERTH_TASK $BERTH_ATTEMPT $BERTH_ATTEMPT_ID" >>%[3]s; sleep $((BERTH_INDEX %% 4))']
    resources: {cpu: 1m, memory: 8MiB}
---
kind: Job
name: %[1]s
steps:
  - {name: all, definition: effects@1, count: %[2]d, retries: 0, on_disconnect: wait}
`

func TestFaultsOfAFleet(t *testing.T) {
	seed := testkit.Setting(t, seedVariable, time.Now().UnixNano())
	faults := chosen(t)
	runs := int(testkit.Setting(t, runsVariable, int64(len(faults))))
	t.Logf("%s=%d %s=%d", seedVariable, seed, runsVariable, runs)
	w := build(t, rand.New(rand.NewPCG(uint64(seed), 0)))
	w.start()
	order := w.random.Perm(len(faults))
	for n := range runs {
		f := faults[order[n%len(faults)]]
		if !t.Run(fmt.Sprintf("%03d/%s", n+1, f.name), func(t *testing.T) { w.run(t, n+1, f) }) {
			w.show()
			return // the following runs would only repeat this failure
		}
	}
}

// chosen returns the faults that faultsVariable names, or all.
func chosen(t *testing.T) []fault {
	t.Helper()
	names := os.Getenv(faultsVariable)
	if names == "" {
		return faults
	}
	var list []fault
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
		if i < 0 {
			t.Fatalf("%s: no fault %q", faultsVariable, name)
		}
		list = append(list, faults[i])
	}
	return list
}

// world is the fleet with its network.
type world struct {
	*harness.Fleet
	t       *testing.T
	lab     *netlab.Lab
	random  *rand.Rand
	disk    *harness.Disk // of the last server
	effects string        // the file that attempts write to

	serverHosts, agentHosts []*netlab.Host
	storeHost               *netlab.Host            // of a store that runs elsewhere; idle without one
	standing                map[string]api.TaskView // by UUID, as they first ran
}

// build makes the network and the fleet in it; nothing runs yet.
func build(t *testing.T, random *rand.Rand) *world {
	t.Helper()
	w := &world{t: t, random: random, lab: netlab.New(t), disk: harness.NewDisk(t, diskSize)}
	w.effects = filepath.Join(t.TempDir(), "effects")
	for i := range servers {
		w.serverHosts = append(w.serverHosts, w.lab.Add(fmt.Sprintf("s%d", i+1)))
	}
	for i := range agents {
		w.agentHosts = append(w.agentHosts, w.lab.Add(fmt.Sprintf("n%d", i+1)))
	}
	w.Fleet = harness.NewFleet(t)
	w.storeHost = w.lab.Add("store")
	w.StoreHost = host(w.storeHost)
	t.Cleanup(w.lab.Heal) // before the fleet ends what runs
	last := filepath.Join(w.Dir, fmt.Sprintf("s%d", servers))
	data := filepath.Join(w.disk.Dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(data, last); err != nil {
		t.Fatal(err)
	}
	return w
}

// host is a machine of the lab as the fleet takes it.
func host(h *netlab.Host) harness.Host {
	return harness.Host{Name: h.Name, Address: h.Address, Prefix: h.Wrap()}
}

// start starts the fleet and the service.
func (w *world) start() {
	w.t.Helper()
	var hosts []harness.Host
	for _, h := range w.serverHosts {
		hosts = append(hosts, host(h))
	}
	w.Start(hosts...)
	for _, h := range w.agentHosts {
		w.Agent(host(h))
	}
	w.Berth("run", w.Write("standing.yaml", fmt.Sprintf(standing, standingTasks))).Want(w.t, 0, "healthy")
	w.standing = map[string]api.TaskView{}
	for _, task := range w.Tasks(client.TaskFilter{Service: "standing"}) {
		w.standing[task.UUID] = task
	}
}

// run injects one fault under load, ends it, and checks the guarantees.
func (w *world) run(t *testing.T, n int, f fault) {
	name := fmt.Sprintf("effects-%d", n)
	recorder, acknowledged, stop := w.load(t)
	file := w.Write(name+".yaml", fmt.Sprintf(job, name, jobTasks, w.effects))
	w.Berth("run", "--detach", file).Want(t, 0)
	testkit.Pause(t.Context(), time.Duration(w.random.IntN(2000))*time.Millisecond)

	began := time.Now()
	f.do(w)
	broken := time.Since(began)
	w.lab.Heal()
	w.settle(t, name)
	settled := time.Since(began) - broken
	testkit.Pause(t.Context(), 500*time.Millisecond) // some writes of the repaired fleet are part of the history
	stop()

	w.checkHistory(t, recorder)
	w.checkWrites(t, *acknowledged)
	w.checkEffects(t, name)
	w.checkStanding(t)
	t.Logf("broken for %v, settled after %v", broken.Round(time.Millisecond), settled.Round(time.Millisecond))
}

// load has clients write and read through all servers until the returned function is called.
func (w *world) load(t *testing.T) (r *history.Recorder, acknowledged *[]string, stop func()) {
	t.Helper()
	var clients []*client.Client
	for _, s := range w.Servers {
		clients = append(clients, s.Client())
	}
	r = history.New(history.Config{
		Servers: clients, Services: 4, Workers: 5, Pause: 60 * time.Millisecond, CallTimeout: 4 * time.Second,
		Random: rand.New(rand.NewPCG(w.random.Uint64(), 0)),
	})
	if err := r.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	acknowledged = new([]string)
	running.Go(func() {
		all := w.Client()
		for i := 0; ctx.Err() == nil; i++ {
			name := fmt.Sprintf("%s-%d", strings.ToLower(strings.Map(letters, t.Name())), i)
			brief, stop := context.WithTimeout(ctx, 3*time.Second)
			if _, err := all.PutCluster(brief, api.Cluster{Name: "c" + name}, client.Condition{}); err == nil {
				*acknowledged = append(*acknowledged, "c"+name)
			}
			stop()
			testkit.Pause(ctx, 100*time.Millisecond)
		}
	})
	return r, acknowledged, func() {
		cancel()
		running.Wait()
	}
}

// letters removes all characters that a name must not contain.
func letters(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
		return r
	}
	return -1
}

// settle waits until everything is in its desired state.
func (w *world) settle(t *testing.T, name string) {
	t.Helper()
	w.Voters(servers)
	for _, s := range w.Servers { // connections whose packets were lost try again later and later
		consistent := s.Client().Consistent()
		w.Eventually(settleLimit, func() error {
			_, err := consistent.Clusters(t.Context(), client.ListOptions{Limit: 1})
			return err
		})
	}
	c := w.Client()
	w.Eventually(settleLimit, func() error {
		j, err := c.Job(t.Context(), cluster.DefaultCluster, name)
		if err == nil && !j.Status.Done() {
			err = fmt.Errorf("the job: %+v", j.Status)
		}
		return err
	})
	w.Eventually(settleLimit, func() error {
		v, err := c.Service(t.Context(), cluster.DefaultCluster, "standing")
		if err == nil && v.Status.Healthy != standingTasks {
			err = fmt.Errorf("the service: %+v", v.Status)
		}
		return err
	})
	for _, a := range w.Agents {
		w.NodeIs(a.Name, cluster.NodeReady)
	}
}

func (w *world) checkHistory(t *testing.T, r *history.Recorder) {
	t.Helper()
	v := r.Check(time.Minute)
	t.Logf("history: %v", v)
	if v.Linearizable {
		return
	}
	t.Errorf("the API's history is %v", v)
	path := filepath.Join(os.TempDir(), "berth-history.html")
	if err := v.Draw(path); err == nil {
		t.Logf("drawn in %s", path)
	}
}

// checkWrites demands every acknowledged write, from each server.
func (w *world) checkWrites(t *testing.T, acknowledged []string) {
	t.Helper()
	if len(acknowledged) < 5 {
		t.Errorf("only %d writes were acknowledged", len(acknowledged))
	}
	for _, s := range w.Servers {
		all, _, err := client.All(t.Context(), client.ListOptions{}, s.Client().Consistent().Clusters)
		if err != nil {
			t.Fatal(err)
		}
		there := map[string]bool{}
		for _, c := range all {
			there[c.Name] = true
		}
		for _, name := range acknowledged {
			if !there[name] {
				t.Errorf("%s does not show the cluster %s, which was acknowledged", s.Host.Name, name)
			}
		}
	}
	t.Logf("%d acknowledged writes", len(acknowledged))
}

// checkEffects demands that every task of the job has succeeded and left its effect once. No machine was lost, so
// there is no excuse.
func (w *world) checkEffects(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile(w.effects)
	if err != nil {
		t.Fatal(err)
	}
	effects := map[string]int{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 {
			effects[f[0]]++
		} else {
			t.Errorf("effect %q", line)
		}
	}
	succeeded := 0
	for _, task := range w.Tasks(client.TaskFilter{Job: name}) {
		if task.State != cluster.StateSucceeded {
			t.Logf("%s attempt %d is %s: %s", task.ID, task.Attempt, task.State, task.Message)
			continue
		}
		succeeded++
		if n := effects[string(task.ID)]; n != 1 {
			t.Errorf("%s has succeeded, and has %d effects", task.ID, n)
		}
	}
	if succeeded != jobTasks {
		t.Errorf("%d of %d tasks have succeeded", succeeded, jobTasks)
	}
}

// checkStanding demands that the service has the same processes as at the start.
func (w *world) checkStanding(t *testing.T) {
	t.Helper()
	now := map[string]api.TaskView{}
	for _, task := range w.Tasks(client.TaskFilter{Service: "standing"}) {
		now[task.UUID] = task
	}
	if len(now) != standingTasks {
		t.Errorf("the service has %d attempts, want %d", len(now), standingTasks)
	}
	for uuid, was := range w.standing {
		is, ok := now[uuid]
		switch {
		case !ok:
			t.Errorf("%s: the attempt %s has gone", was.ID, uuid)
		case is.Containers[0].Pid != was.Containers[0].Pid || is.Containers[0].PidStart != was.Containers[0].PidStart:
			t.Errorf("%s: ran as pid %d, runs as pid %d", was.ID, was.Containers[0].Pid, is.Containers[0].Pid)
		case harness.StartOf(was.Containers[0].Pid) != was.Containers[0].PidStart:
			t.Errorf("%s: pid %d does not live", was.ID, was.Containers[0].Pid)
		}
	}
}

// show prints the logs of the servers and agents.
func (w *world) show() {
	for _, s := range w.Servers {
		w.t.Logf("%s said:\n%s", s.Host.Name, tail(s.Output()))
	}
	for _, a := range w.Agents {
		w.t.Logf("%s said:\n%s", a.Name, tail(a.Output()))
	}
}

func tail(s string) string { return s[max(0, len(s)-6000):] }

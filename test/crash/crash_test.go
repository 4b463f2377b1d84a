// Package crash_test kills the real agent and the real server at random times while services and jobs run. It then
// checks that no work was lost, doubled or disturbed.
package crash_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// Settings of the test from the environment: the number of kills (20 by default), the seed of a failed run, and the
// load. `make prove` has more kills and more load.
const (
	killsVariable    = "BERTH_CRASH_KILLS"
	seedVariable     = "BERTH_CRASH_SEED"
	servicesVariable = "BERTH_CRASH_SERVICES" // containers of services
	batchVariable    = "BERTH_CRASH_BATCH"    // parallel tasks of the job
	settleLimit      = 2 * time.Minute
)

// load is the number of tasks during the kills: the tasks of a service, the parallel tasks of a job, and all tasks of
// the job.
type load struct{ services, atOnce, batch int }

// loadOf returns the load during kills: at least 50 containers of services and 200 batch tasks, some of them at their
// start barrier.
func loadOf(t *testing.T, kills int64) load {
	t.Helper()
	services, atOnce := testkit.Setting(t, servicesVariable, 50), testkit.Setting(t, batchVariable, 200)
	return load{services: int(services), atOnce: int(atOnce), batch: int(max(atOnce*3/2, 15*kills))}
}

const standing = `
kind: TaskDefinition
name: standing
version: 1
containers:
  - name: main
    image: ` + harness.Image + `
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
const batch = `
kind: TaskDefinition
name: batch
version: 1
containers:
  - name: main
    image: ` + harness.Image + `
    command: [sh, -c, 'echo "$BERTH_TASK $BERTH_ATTEMPT $BERTH_ATTEMPT_ID" >>%[2]s/effects; sleep $((BERTH_INDEX %% 12))']
    resources: {cpu: %[4]dm, memory: 8MiB}%[3]s
---
kind: Job
name: batch
steps:
  - {name: all, definition: batch@1, count: %[1]d, retries: 10}
`

const effectsVolume = `
    mounts: [{volume: effects, path: %[1]s}]
volumes:
  - {name: effects, host: %[1]s}`

func TestKillNine(t *testing.T) {
	harness.Each(t, func(t *testing.T, executor string) {
		seed := testkit.Setting(t, seedVariable, time.Now().UnixNano())
		kills := testkit.Setting(t, killsVariable, 20)
		t.Logf("%s=%d %s=%d", seedVariable, seed, killsVariable, kills)
		s := harness.New(t, executor)
		w := &crashSite{
			T: t, site: s, random: rand.New(rand.NewPCG(uint64(seed), 0)), effects: t.TempDir(),
			load: loadOf(t, kills),
		}
		w.server, w.agent = s.Server(), s.Agent()
		before := w.begin()
		stop := w.watch()
		for k := range kills {
			w.waitToKill(k%2 == 0)
			w.killRandomProcess()
		}
		if w.inFlight < int(kills)/2 {
			t.Errorf("the job was done before %d of %d kills: they proved nothing about it", int(kills)-w.inFlight,
				kills)
		}
		if w.atBarrier == 0 {
			t.Errorf("none of %d kills came while an attempt was between preparing and running", kills)
		}
		t.Logf("of %d kills %d came while the job ran, %d of them while attempts were between preparing and running",
			kills, w.inFlight, w.atBarrier)
		w.settle()
		stop()
		w.checkServices(before)
		w.checkEffects()
		w.checkWrites()
		w.checkEvents()
	})
}

// crashSite is a site whose processes the test kills.
type crashSite struct {
	*testing.T
	site          *harness.Site
	random        *rand.Rand
	effects       string // the folder that attempts write to
	load          load
	inFlight      int // kills during which the job had tasks to run
	atBarrier     int // kills right before which attempts were seen between preparing and running
	server, agent *harness.Daemon

	mu      sync.Mutex
	written map[string]uint64 // acknowledged writes: cluster and revision
	seen    []api.EventView   // by the follower, across restarts
	broken  error             // why the follower ended
	last    string            // the last event before the end
}

// begin runs the services, waits until they are healthy, and starts the job.
func (w *crashSite) begin() []api.TaskView {
	w.Helper()
	w.site.Berth("run", w.site.Write("standing.yaml", fmt.Sprintf(standing, w.load.services))).Want(w.T, 0, "healthy")
	volume := ""
	if w.site.Executor == harness.Containerd {
		volume = fmt.Sprintf(effectsVolume, w.effects)
	}
	job := w.site.Write("batch.yaml", fmt.Sprintf(batch, w.load.batch, w.effects, volume, w.share()))
	w.site.Berth("run", "--detach", job).Want(w.T, 0)
	return w.site.Tasks(client.TaskFilter{Service: "standing"})
}

// share returns the CPU of a batch task. With it as many tasks run in parallel as wanted, so that some are in each
// state at every time of the test.
func (w *crashSite) share() int {
	w.Helper()
	n, err := w.site.Client().Node(w.Context(), harness.NodeName)
	if err != nil {
		w.Fatal(err)
	}
	return max((int(n.Total.CPU)-w.load.services)/w.load.atOnce, 1)
}

// watch writes clusters and follows the events, until its result is called.
func (w *crashSite) watch() (stop func()) {
	w.written = map[string]uint64{}
	ctx, cancel := context.WithCancel(w.Context())
	c := w.site.Client()
	var group sync.WaitGroup
	group.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			name := fmt.Sprintf("c%d", n)
			rev, err := c.PutCluster(ctx, api.Cluster{Name: name}, client.Condition{})
			w.mu.Lock()
			if err == nil {
				w.written[name] = rev
			}
			w.mu.Unlock()
			testkit.Pause(ctx, 20*time.Millisecond)
		}
	})
	group.Go(func() {
		for e, err := range c.FollowEvents(ctx, client.EventOptions{Gap: func(g api.EventGap) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.broken = fmt.Errorf("the stream left out %d events", g.Lost)
		}}) {
			w.mu.Lock()
			if err != nil && ctx.Err() == nil {
				w.broken = err
			} else if err == nil {
				w.seen = append(w.seen, e)
			}
			w.mu.Unlock()
		}
	})
	return func() {
		w.Helper()
		// no more events follow
		w.site.Berth("scale", "--detach", "service/standing", strconv.Itoa(w.load.services)).Want(w.T, 0)
		all := w.events()
		w.last = all[len(all)-1].ID
		w.site.Eventually(settleLimit, func() error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.broken != nil {
				w.Fatalf("follow events: %v", w.broken)
			}
			for _, e := range w.seen {
				if e.ID == w.last {
					return nil
				}
			}
			return fmt.Errorf("the event %s has not come; %d have", w.last, len(w.seen))
		})
		cancel()
		group.Wait()
	}
}

// waitToKill waits for a random time, or until an attempt of the job is seen to begin, and counts what the next kill
// meets.
func (w *crashSite) waitToKill(untilBegin bool) {
	w.Helper()
	ctx := testkit.Context(w.T, settleLimit)
	if !untilBegin {
		testkit.Pause(ctx, time.Duration(w.random.IntN(1000))*time.Millisecond)
	}
	for ctx.Err() == nil {
		if j, err := w.site.Client().Job(ctx, cluster.DefaultCluster, "batch"); err != nil || j.Status.Done() {
			return // the job is done, or the server is busy; another kill follows
		}
		begins := w.someBegin()
		if begins {
			w.atBarrier++
		}
		if begins || !untilBegin {
			w.inFlight++
			return
		}
		testkit.Pause(ctx, time.Millisecond)
	}
}

// killRandomProcess kills the agent, the server or both, and starts them again.
func (w *crashSite) killRandomProcess() {
	w.Helper()
	what := w.random.IntN(3)
	killAgent, killServer := what != 1, what != 0
	if killAgent && killServer && w.random.IntN(2) == 0 {
		w.server.Kill()
		w.agent.Kill()
		killServer, killAgent = false, false
		w.server, w.agent = nil, nil
	}
	if killAgent {
		w.agent.Kill()
		w.agent = nil
	}
	if killServer {
		w.server.Kill()
		w.server = nil
	}
	testkit.Pause(w.Context(), time.Duration(w.random.IntN(300))*time.Millisecond)
	if w.agent == nil && w.random.IntN(2) == 0 {
		w.agent = w.site.StartAgent()
	}
	if w.server == nil {
		w.server = w.site.Server()
	}
	if w.agent == nil {
		w.agent = w.site.StartAgent()
	}
}

// someBegin reports whether an attempt of the job is between preparing and running: on its way to the start barrier,
// at it, or just through.
func (w *crashSite) someBegin() bool {
	page, err := w.site.Client().Tasks(w.Context(), client.TaskFilter{Job: "batch"}, client.ListOptions{})
	if err != nil {
		return false // the server is busy; another kill follows
	}
	return slices.ContainsFunc(page.Items, func(t api.TaskView) bool {
		return t.State == cluster.StatePreparing || t.State == cluster.StateStarting
	})
}

// settle waits until the job has ended.
func (w *crashSite) settle() {
	w.Helper()
	c := w.site.Client()
	w.site.Eventually(settleLimit, func() error {
		j, err := c.Job(w.Context(), cluster.DefaultCluster, "batch")
		if err == nil && !j.Status.Done() {
			err = fmt.Errorf("job: %+v", j.Status)
		}
		return err
	})
	w.site.Eventually(settleLimit, func() error {
		v, err := c.Service(w.Context(), cluster.DefaultCluster, "standing")
		if err == nil && v.Status.Healthy != w.load.services {
			err = fmt.Errorf("service: %+v", v.Status)
		}
		return err
	})
}

// checkServices demands that the services have the same processes as before the first kill.
func (w *crashSite) checkServices(before []api.TaskView) {
	w.Helper()
	now := map[string]api.TaskView{}
	for _, task := range w.site.Tasks(client.TaskFilter{Service: "standing"}) {
		now[task.UUID] = task
	}
	if len(before) != w.load.services || len(now) != w.load.services {
		w.Errorf("%d services ran before and %d attempts are there now, want %d", len(before), len(now),
			w.load.services)
	}
	for _, was := range before {
		is, ok := now[was.UUID]
		switch {
		case !ok:
			w.Errorf("%s: the attempt %s has gone", was.ID, was.UUID)
		case is.Containers[0].Pid != was.Containers[0].Pid || is.Containers[0].PidStart != was.Containers[0].PidStart:
			w.Errorf("%s: ran as pid %d, runs as pid %d", was.ID, was.Containers[0].Pid, is.Containers[0].Pid)
		case harness.StartOf(was.Containers[0].Pid) != was.Containers[0].PidStart:
			w.Errorf("%s: pid %d does not live", was.ID, was.Containers[0].Pid)
		case is.Restarts != 0:
			w.Errorf("%s: was restarted %d times", was.ID, is.Restarts)
		}
	}
}

// checkEffects demands that no attempt wrote its effect twice, and that every succeeded attempt wrote it. No attempt
// may follow a succeeded one, and in the end every task has succeeded.
func (w *crashSite) checkEffects() {
	w.Helper()
	text, err := os.ReadFile(filepath.Join(w.effects, "effects"))
	if err != nil {
		w.Fatal(err)
	}
	attempts := map[string]int{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			w.Fatalf("effect %q", line)
		}
		attempts[f[2]]++
	}
	for uuid, n := range attempts {
		if n != 1 {
			w.Errorf("attempt %s ran %d times", uuid, n)
		}
	}
	ended, concluded := map[string]int{}, map[string]bool{}
	for _, task := range w.site.Tasks(client.TaskFilter{Job: "batch"}) {
		ended[string(task.State)]++
		if concluded[string(task.ID)] {
			w.Errorf("%s has attempt %d after one that has succeeded", task.ID, task.Attempt)
		}
		switch n := attempts[task.UUID]; {
		case !task.State.Terminal():
			w.Errorf("%s attempt %d is %s after the job ended", task.ID, task.Attempt, task.State)
		case task.State == cluster.StateSucceeded && n != 1:
			w.Errorf("%s attempt %d has succeeded and has %d effects", task.ID, task.Attempt, n)
		case task.State == cluster.StateSucceeded:
			concluded[string(task.ID)] = true
		default:
			w.Logf("%s attempt %d (%s): %s, %s: %s; effects: %d", task.ID, task.Attempt, task.UUID, task.State,
				task.Reason, task.Message, n)
		}
	}
	if len(concluded) != w.load.batch {
		w.Errorf("%d of %d tasks have succeeded", len(concluded), w.load.batch)
	}
	w.Logf("%d effects; attempts by end: %v", len(attempts), ended)
}

// checkWrites demands every acknowledged write.
func (w *crashSite) checkWrites() {
	w.Helper()
	page, err := w.site.Client().Clusters(w.Context(), client.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	found := map[string]uint64{}
	for _, c := range page.Items {
		found[c.Name] = c.Revision
	}
	for name, rev := range w.written {
		if found[name] != rev {
			w.Errorf("cluster %s was acknowledged at revision %d and is at %d", name, rev, found[name])
		}
	}
	if len(w.written) < 50 {
		w.Errorf("only %d writes were acknowledged", len(w.written))
	}
	w.Logf("%d acknowledged writes", len(w.written))
}

// events lists the whole log.
func (w *crashSite) events() []api.EventView {
	w.Helper()
	c := w.site.Client()
	var all []api.EventView
	after := ""
	for {
		page, err := c.Events(w.Context(), client.EventOptions{After: after}, client.ListOptions{})
		if err != nil {
			w.Fatalf("list events: %v", err)
		}
		all = append(all, page.Items...)
		if page.Next == "" {
			return all
		}
		after = page.Next
	}
}

// checkEvents compares the events of the follower, across all restarts, with the log, and the log with the outcomes.
func (w *crashSite) checkEvents() {
	w.Helper()
	all := w.events()
	upTo := func(list []api.EventView) []string {
		var ids []string
		for _, e := range list {
			ids = append(ids, e.ID+" "+e.RoutingKey)
			if e.ID == w.last {
				return ids
			}
		}
		w.Error("the last event is not in the list")
		return ids
	}
	if diff := cmp.Diff(upTo(all), upTo(w.seen)); diff != "" {
		w.Errorf("the follower saw other events than the log has (-log +seen):\n%s", diff)
	}
	published := map[string]bool{}
	for _, e := range all {
		published[e.Type+" "+string(e.Task)+" "+strconv.Itoa(e.Attempt)] = true
	}
	for _, task := range w.site.Tasks(client.TaskFilter{Job: "batch"}) {
		key := "task." + string(task.State) + " " + string(task.ID) + " " + strconv.Itoa(task.Attempt)
		if !published[key] {
			w.Errorf("there is no event %q", key)
		}
	}
	w.Logf("%d events, %d seen by the follower", len(all), len(w.seen))
}

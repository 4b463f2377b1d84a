package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
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
	"github.com/berthd/berth/test/load"
	"github.com/berthd/berth/test/netlab"
)

// servedImage is the image of test/load/task.
const servedImage = "berth.local/task:1"

// serviceFleet is a fleet whose machines have networks of their own, with a client machine that collects the records of
// tasks.
type serviceFleet struct {
	*harness.Fleet
	t        *testing.T
	lab      *netlab.Lab
	asker    *netlab.Host
	client   *client.Client
	recorder *load.Recorder
	program  string // the image of the containers
	random   *rand.Rand
	machines int
	// delay is the shutdown delay of the services, in which clients learn that an address is left.
	delay cluster.Duration
}

// newServiceFleet makes and starts that many servers and agents.
func newServiceFleet(t *testing.T, executor string, servers, agents int, agentFlags ...string) *serviceFleet {
	t.Helper()
	harness.Need(t, executor)
	testkit.NeedCommand(t, "nsenter")
	seed := testkit.Setting(t, "BERTH_SERVICES_SEED", 1)
	t.Logf("BERTH_SERVICES_SEED=%d", seed)
	lab := netlab.New(t)
	w := &serviceFleet{t: t, lab: lab, random: rand.New(rand.NewPCG(uint64(seed), 0))}
	w.asker = lab.Add("asker")
	listener, err := w.asker.Listen(net.JoinHostPort(w.asker.Address, "9000"))
	if err != nil {
		t.Fatal(err)
	}
	w.recorder = load.NewRecorder(listener)
	t.Cleanup(w.recorder.Close)
	hosts := w.spare(servers + agents)
	w.Fleet = harness.NewFleet(t)
	w.Fleet.Executor, w.AgentFlags = executor, agentFlags
	w.delay = min(harness.Scaled(time.Duration(cluster.DefaultShutdownDelay)), maxDelay)
	w.program = harness.Program(t, w.Dir, "./test/load/task")
	w.Start(hosts[:servers]...)
	for _, h := range hosts[servers:] {
		w.Agent(h)
	}
	w.client = w.Client()
	if executor == harness.Containerd {
		archive := harness.ProgramImage(t, w.Dir, servedImage, w.program)
		for _, a := range w.Agents {
			w.Berth("image", "load", "--node", a.Name, archive).Want(t, 0)
		}
		w.program = "/bin/task"
	}
	return w
}

// spare returns n more machines without agents. They do not use "ip netns exec", which hides the control groups that
// containers need.
func (w *serviceFleet) spare(n int) (hosts []harness.Host) {
	for range n {
		w.machines++
		h := w.lab.Add(fmt.Sprintf("h%d", w.machines))
		hosts = append(hosts, harness.Host{
			Name: h.Name, Address: h.Address,
			Prefix: []string{"nsenter", "--net=/var/run/netns/" + h.Space},
		})
	}
	return hosts
}

// served describes a service: a version of the program task with its environment.
type served struct {
	name    string
	version int
	count   int
	env     map[string]string
	update  cluster.Update
	more    func(*api.TaskDefinition, *api.Service)
}

// maxDelay bounds the shutdown delay on a busy machine: each stop takes as long.
const maxDelay = cluster.Duration(3 * time.Second)

// put writes a version of a service.
func (w *serviceFleet) put(v served) {
	w.t.Helper()
	env := map[string]string{
		"VERSION": fmt.Sprint(v.version), "DRAIN": "1s", "RECORD": w.recorder.Address(),
		"GOMAXPROCS": "1",
	}
	maps.Copy(env, v.env)
	d := api.TaskDefinition{
		Name: v.name, Version: v.version,
		Containers: []cluster.Container{{
			Name: "main", Command: []string{w.program}, Env: env,
			Resources: cluster.Resources{CPU: 1, Memory: 64 << 20},
		}},
		Ports: []cluster.Port{{Name: "http"}},
		Checks: []cluster.Check{{
			Name: "answers", Type: cluster.CheckHTTP, Port: "http", Path: "/healthz",
			InitialDelay: cluster.Duration(200 * time.Millisecond), Interval: harness.Scaled(time.Second),
			Timeout: harness.Scaled(time.Second),
		}},
		Grace: cluster.Duration(10 * time.Second), ShutdownDelay: &w.delay,
	}
	if w.Executor == harness.Containerd {
		d.Containers[0].Image = servedImage
	}
	s := api.Service{
		Cluster: cluster.DefaultCluster, Name: v.name,
		Definition: cluster.Ref{Name: v.name, Version: v.version}, Count: v.count, Update: v.update,
	}
	if v.more != nil {
		v.more(&d, &s)
	}
	w.Eventually(soon, func() error {
		each, cancel := testkit.WithLimit(w.t.Context(), 5*time.Second)
		defer cancel()
		if _, err := w.client.PutDefinition(each, d); err != nil {
			return err
		}
		_, err := w.client.PutService(each, s, client.Condition{})
		if code := client.StatusOf(err); code == http.StatusBadRequest || code == http.StatusUnprocessableEntity {
			w.t.Fatal(err)
		}
		return err
	})
}

// portion is a number of tasks for a policy.
func portion(n int) *cluster.Portion { return &cluster.Portion{N: n} }

// completes waits until a version of a service is rolled out, and returns the state of its rollout.
func (w *serviceFleet) completes(name string, version int) (v api.RolloutView) {
	w.t.Helper()
	w.Eventually(2*soon, func() (err error) {
		if v, err = w.rollout(name); err != nil {
			return err
		}
		if v.State != cluster.RolloutComplete || v.Definition.Version != version {
			return fmt.Errorf("%s is %s: %s %v", v.Definition, v.State, v.Message, v.Waits)
		}
		return nil
	})
	return v
}

func (w *serviceFleet) rollout(name string) (api.RolloutView, error) {
	each, cancel := testkit.WithLimit(w.t.Context(), 5*time.Second)
	defer cancel()
	return w.client.Rollout(each, cluster.DefaultCluster, name)
}

// awaitEvent waits for an event whose message contains words.
func (w *serviceFleet) awaitEvent(kind string, words ...string) (found api.EventView) {
	w.t.Helper()
	w.Eventually(soon, func() error {
		page, err := w.client.Events(w.t.Context(), client.EventOptions{Types: []string{kind}},
			client.ListOptions{Limit: 1000})
		if err != nil {
			return err
		}
		for _, e := range page.Items {
			text := e.Message + " " + string(e.Task) + " " + e.Node + " " + string(e.Reason)
			if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) }) {
				found = e
				return nil
			}
		}
		return fmt.Errorf("no event %s with %q among %d: %v", kind, words, len(page.Items), page.Items)
	})
	return found
}

// sendRequests sends requests to a service's healthy addresses until its result is called. The result demands that all
// were answered, and that Berth stopped no healthy task below the minimum.
func (w *serviceFleet) sendRequests(name string, least int, kills *[]load.Kill) (stop func()) {
	w.t.Helper()
	traffic := load.New(load.Config{
		Client: w.Client(), Service: name, Port: "http", Dial: w.asker.Dial, Rate: 60, Workers: 6,
		Random: rand.New(rand.NewPCG(w.random.Uint64(), 0)),
	})
	ctx, cancel := context.WithCancel(w.t.Context())
	began := time.Now()
	var running sync.WaitGroup
	running.Go(func() { traffic.Run(ctx) })
	return func() {
		w.t.Helper()
		w.Eventually(soon, func() error { // what was asked about may have been over in no time
			if n := traffic.Sent(); n < 20 {
				return fmt.Errorf("%d requests were sent", n)
			}
			return nil
		})
		until := time.Now()
		cancel()
		running.Wait()
		var killed []load.Kill
		if kills != nil {
			killed = *kills
		}
		failures, _ := traffic.Failures()
		failures = slices.DeleteFunc(failures, func(f load.Failure) bool { return load.Excused(f, killed) })
		for _, f := range failures[:min(len(failures), 10)] {
			w.t.Errorf("a request failed: %v", f)
		}
		if len(failures) > 10 {
			w.t.Errorf("and %d more requests failed", len(failures)-10)
		}
		if n := traffic.Empty(); n > 0 {
			w.t.Errorf("%d times there was no address", n)
		}
		records := slices.DeleteFunc(w.recorder.All(), func(r load.Record) bool {
			return r.At.After(until) || w.owner(r) != name
		})
		for _, fault := range load.BelowMinimum(records, killed, []load.Least{{At: began, N: least}},
			time.Duration(w.delay)) {
			w.t.Error(fault)
		}
		w.t.Logf("%d requests in %v, at least %d addresses", traffic.Sent(), until.Sub(began).Round(time.Millisecond),
			traffic.Fewest())
	}
}

// owner is the service of a record's task.
func (w *serviceFleet) owner(r load.Record) string {
	parts, _ := r.Task.Parts()
	return parts.Owner
}

// recorded reports whether a process of a version sent a record of a kind.
func (w *serviceFleet) recorded(what string, version int) bool {
	return slices.ContainsFunc(w.recorder.All(), func(r load.Record) bool {
		return r.What == what && r.Version == fmt.Sprint(version)
	})
}

// rolledBack returns how many rollouts to a version were rolled back.
func (w *serviceFleet) rolledBack(service string, version int) (count int, err error) {
	h, err := w.client.RolloutHistory(w.t.Context(), cluster.DefaultCluster, service)
	if err != nil {
		return 0, err
	}
	for _, v := range h.Versions {
		if v.Definition.Version == version && v.State == cluster.RolloutRolledBack {
			count++
		}
	}
	return count, nil
}

// wasRolledBack returns nil once the history holds that a version was rolled back.
func (w *serviceFleet) wasRolledBack(service string, version int) error {
	count, err := w.rolledBack(service, version)
	if err == nil && count == 0 {
		err = fmt.Errorf("the history does not hold that version %d was rolled back", version)
	}
	return err
}

// begin runs traffic until its result is called.
func begin(t *testing.T, traffic *load.Traffic) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { traffic.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

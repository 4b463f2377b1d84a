package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/discovery"
	"github.com/berthd/berth/internal/discovery/fake"
	"github.com/berthd/berth/internal/executor"
)

// registration is the ID of the first registration of the attempt s1.
const registration = "berth-me-s1-0"

// registeredDefinition returns a definition whose task is registered, with a readiness check.
func registeredDefinition() *cluster.TaskDefinition {
	d := definition("web", "app")
	d.Ports = []cluster.Port{{Name: "http"}}
	d.Checks = []cluster.Check{{Name: "ready", Type: cluster.CheckTCP, Port: "http"}}
	d.Discovery.Consul = []cluster.ConsulService{{Tags: []string{"v1"}, Meta: map[string]string{"team": "shop"}}}
	d.SetDefaults()
	return d
}

// registering is a world with a system for discovery and a task whose check a test decides.
type registering struct {
	*world

	system *fake.System
	ready  atomic.Bool
}

// inDiscovery runs a test in a bubble. No task runs yet; checks succeed.
func inDiscovery(t *testing.T, test func(w *registering)) {
	synctest.Test(t, func(t *testing.T) {
		w := &registering{world: newWorld(t), system: &fake.System{}}
		w.ready.Store(true)
		w.world.discovery = w.system
		w.world.without = 0
		w.world.probe = func(context.Context, *cluster.Check, map[string]int) error {
			if !w.ready.Load() {
				return errors.New("connection refused")
			}
			return nil
		}
		w.start()
		defer func() { w.stop() }()
		test(w)
	})
}

// serve begins the attempt s1 of a registered task, and lets its check run.
func (w *registering) serve(def *cluster.TaskDefinition) cluster.Desired {
	d := w.desired("s1", def, cluster.KindService)
	d.Ports = map[string]int{"http": 30412}
	w.assign(d, def)
	w.pass(6 * time.Second)
	return d
}

// wantHealth compares the state of the registration; "" means that there is none.
func (w *registering) wantHealth(want cluster.Health) fake.Entry {
	w.t.Helper()
	e := w.system.Entries()[registration]
	if e.State.Health != want {
		w.t.Errorf("the registration is %q, want %q\ncalls: %q", e.State.Health, want, w.system.Calls())
	}
	return e
}

// countCalls returns the number of calls that begin with a text.
func (w *registering) countCalls(prefix string) (n int) {
	for _, c := range w.system.Calls() {
		if strings.HasPrefix(c, prefix) {
			n++
		}
	}
	return n
}

// TestHealthyTaskIsRegistered takes a task through its life. It is registered once it is healthy, with the address, the
// port and the metadata that others need. Its health follows its checks.
func TestHealthyTaskIsRegistered(t *testing.T) {
	inDiscovery(t, func(w *registering) {
		w.ready.Store(false)
		w.serve(registeredDefinition())
		w.wantHealth("")
		w.ready.Store(true)
		w.pass(6 * time.Second)
		e := w.wantHealth(cluster.HealthHealthy)
		want := discovery.Registration{
			ID: registration, Name: "web", Address: "10.0.0.1", Port: 30412, Tags: []string{"v1"},
			Meta: map[string]string{
				"team": "shop", "berth-cluster": "default", "berth-service": "web", "berth-task": "default.web.1.0",
				"berth-attempt": "1", "berth-version": "web@1", "berth-node": "n1",
			},
		}
		if diff := cmp.Diff(want, e.Registration); diff != "" {
			t.Errorf("registration (-want +got):\n%s", diff)
		}
		w.ready.Store(false)
		w.pass(6 * time.Second)
		if e := w.wantHealth(cluster.HealthWarning); !strings.Contains(e.State.Text, "connection refused") {
			t.Errorf("the state says %q, want the answer of the check", e.State.Text)
		}
		w.pass(10 * time.Second)
		w.wantHealth(cluster.HealthFailing)
		w.ready.Store(true)
		w.pass(6 * time.Second)
		w.wantHealth(cluster.HealthHealthy)
		if n := w.countCalls("register"); n != 1 {
			t.Errorf("it was registered %d times, want 1: %q", n, w.system.Calls())
		}
	})
}

// TestNativeChecksAreRegistered checks that Consul gets the readiness checks, and no reports.
func TestNativeChecksAreRegistered(t *testing.T) {
	inDiscovery(t, func(w *registering) {
		def := registeredDefinition()
		def.Checks = append(def.Checks,
			cluster.Check{Name: "page", Type: cluster.CheckHTTP, Port: "http", Path: "/ready"},
			cluster.Check{Name: "alive", Type: cluster.CheckTCP, Port: "http", Meaning: cluster.MeaningLiveness})
		def.Discovery.Consul[0].Checks = cluster.ConsulNative
		def.SetDefaults()
		w.serve(def)
		e := w.wantHealth(cluster.HealthHealthy)
		want := []discovery.Check{
			{Name: "ready", Type: cluster.CheckTCP, Address: "10.0.0.1:30412"},
			{Name: "page", Type: cluster.CheckHTTP, Address: "10.0.0.1:30412", Path: "/ready"},
		}
		for i := range want {
			want[i].Interval, want[i].Timeout, want[i].FailAfter = 5*time.Second, 2*time.Second, 3
		}
		if diff := cmp.Diff(want, e.Registration.Checks); diff != "" {
			t.Errorf("checks (-want +got):\n%s", diff)
		}
		w.pass(time.Minute)
		if n := w.countCalls("report"); n != 0 {
			t.Errorf("%d reports, want none: %q", n, w.system.Calls())
		}
	})
}

// TestReportsAreRenewed lets a healthy task run. Its reports come within the interval of the driver, and nothing else
// is done.
func TestReportsAreRenewed(t *testing.T) {
	inDiscovery(t, func(w *registering) {
		w.serve(registeredDefinition())
		w.pass(5 * time.Minute)
		if e := w.wantHealth(cluster.HealthHealthy); e.Reports < 5*60/10 || e.Reports > 2*5*60/10+2 {
			t.Errorf("%d reports in 5 minutes with an interval of 10 s", e.Reports)
		}
		if n := w.countCalls("register"); n != 1 {
			t.Errorf("it was registered %d times, want 1", n)
		}
	})
}

// TestRegistrationEndsBeforeTERM stops a task by a permit. Its registration goes when the permit is used. It gets TERM
// once the shutdown delay has passed since then, however long the removal took.
func TestRegistrationEndsBeforeTERM(t *testing.T) {
	inDiscovery(t, func(w *registering) {
		def := registeredDefinition()
		delay := cluster.Duration(3 * time.Second)
		def.ShutdownDelay = &delay
		d := w.serve(def)
		w.requestStop(d, "")
		w.pass(time.Second)
		w.wantHealth(cluster.HealthHealthy) // it waits for its permit
		// The registrar may remove it, too. Whichever comes first waits for the system.
		var delayed atomic.Bool
		w.system.Before(func(ctx context.Context, call string) error {
			if strings.HasPrefix(call, "deregister") && delayed.CompareAndSwap(false, true) {
				time.Sleep(time.Second) // in-bubble: inDiscovery
			}
			return nil
		})
		w.requestStop(d, "1.1")
		w.pass(2 * time.Second)
		w.wantHealth("")
		if got, _ := w.signals(t); len(got) != 0 {
			t.Fatalf("it got %v in its shutdown delay", got)
		}
		w.pass(1900 * time.Millisecond) // 3.95 s after the permit
		if got, _ := w.signals(t); len(got) != 0 {
			t.Fatalf("it got %v, %v after its registration was removed", got, 2950*time.Millisecond)
		}
		w.pass(200 * time.Millisecond)
		w.want("s1", cluster.StateCancelled, cluster.ReasonRollout)
		if got, _ := w.signals(t); !slices.Equal(got, []syscall.Signal{syscall.SIGTERM}) {
			t.Errorf("signals %v, want TERM", got)
		}
	})
}

// TestMandatoryStopLeavesFirst deletes a task. Its registration goes before TERM, without a delay after it.
func TestMandatoryStopLeavesFirst(t *testing.T) {
	inDiscovery(t, func(w *registering) {
		d := w.serve(registeredDefinition())
		w.executor.mu.Lock()
		registered := false
		w.executor.crash = func(point string) {
			if point == "before signal" {
				_, registered = w.system.Entries()[registration]
			}
		}
		w.executor.mu.Unlock()
		w.system.Before(func(ctx context.Context, call string) error {
			if strings.HasPrefix(call, "deregister") {
				time.Sleep(500 * time.Millisecond) // in-bubble: inDiscovery
			}
			return nil
		})
		w.stopTask(d, false)
		w.pass(1500 * time.Millisecond) // the registrar's removal may come first
		w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted)
		if registered {
			t.Error("it got its signal while it was registered")
		}
		w.wantHealth("")
	})
}

// TestSystemThatHangsDelaysAStopBriefly stops a task while the system does not answer. It gets TERM after the bound,
// other tasks start meanwhile, and the registration goes once the system answers.
func TestSystemThatHangsDelaysAStopBriefly(t *testing.T) {
	inDiscovery(t, func(w *registering) {
		d := w.serve(registeredDefinition())
		w.system.Hang()
		w.stopTask(d, false)
		other := w.desired("s2", definition("other", "app"), cluster.KindService)
		other.Task = cluster.ServiceTask("default", "other", 1, 0)
		w.assign(other, definition("other", "app"))
		w.want("s2", cluster.StateRunning, "")
		w.pass(1800 * time.Millisecond)
		if got, _ := w.signals(t); len(got) != 0 {
			t.Errorf("it got %v within the bound", got)
		}
		w.pass(300 * time.Millisecond)
		w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted)
		w.wantHealth(cluster.HealthHealthy)
		w.system.Recover()
		w.pass(15 * time.Second)
		w.wantHealth("")
	})
}

// TestLeavingWaitsForARegistrationInFlight stops a task while its registration is being made. The removal comes last.
func TestLeavingWaitsForARegistrationInFlight(t *testing.T) {
	inDiscovery(t, func(w *registering) {
		w.system.Before(func(ctx context.Context, call string) error {
			if strings.HasPrefix(call, "register") {
				time.Sleep(1500 * time.Millisecond) // in-bubble: inDiscovery
			}
			return nil
		})
		def := registeredDefinition()
		d := w.desired("s1", def, cluster.KindService)
		d.Ports = map[string]int{"http": 30412}
		w.assign(d, def)
		for range 100 {
			if o := w.want("s1", cluster.StateRunning, ""); o.Health == cluster.HealthHealthy {
				break
			}
			w.pass(50 * time.Millisecond)
		}
		w.wantHealth("")
		w.stopTask(d, false)
		w.pass(3 * time.Second)
		w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted)
		w.wantHealth("")
		w.pass(time.Minute)
		w.wantHealth("")
		if n := w.countCalls("register"); n != 1 {
			t.Errorf("it was registered %d times, want 1: %q", n, w.system.Calls())
		}
	})
}

// TestQueuedRegistrationsAreGivenUp stops a task with many registrations, of which some wait for others. None is made
// once the task has left.
func TestQueuedRegistrationsAreGivenUp(t *testing.T) {
	inDiscovery(t, func(w *registering) {
		w.system.Before(func(ctx context.Context, call string) error {
			if strings.HasPrefix(call, "register") {
				time.Sleep(500 * time.Millisecond) // in-bubble: inDiscovery
			}
			return nil
		})
		def := registeredDefinition()
		for i := range 19 {
			def.Discovery.Consul = append(def.Discovery.Consul, cluster.ConsulService{Name: fmt.Sprint("n", i)})
		}
		def.SetDefaults()
		d := w.desired("s1", def, cluster.KindService)
		d.Ports = map[string]int{"http": 30412}
		w.assign(d, def)
		for range 100 {
			if o := w.want("s1", cluster.StateRunning, ""); o.Health == cluster.HealthHealthy {
				break
			}
			w.pass(50 * time.Millisecond)
		}
		w.pass(600 * time.Millisecond)
		w.stopTask(d, false)
		w.pass(time.Minute)
		if got := w.system.Entries(); len(got) != 0 {
			t.Errorf("the system has %d registrations of a task that has ended", len(got))
		}
		if n := w.countCalls("register"); n == 0 || n > 16 {
			t.Errorf("%d registrations were begun, want at most those of the first 2 turns of 8", n)
		}
	})
}

// TestCrashedTaskLeaves ends a program. The registration goes, and comes back once the next run is healthy.
func TestCrashedTaskLeaves(t *testing.T) {
	inDiscovery(t, func(w *registering) {
		w.executor.programs["app"] = program{Runs: 20 * time.Second, Code: 1}
		def := registeredDefinition()
		def.Restart.Delay = cluster.Duration(30 * time.Second)
		w.serve(def)
		w.wantHealth(cluster.HealthHealthy)
		w.pass(15 * time.Second)
		w.want("s1", cluster.StateStarting, cluster.ReasonExit)
		w.wantHealth("")
		w.pass(35 * time.Second)
		w.wantHealth(cluster.HealthHealthy)
	})
}

// TestNextAgentKeepsRegistrations restarts the agent. Nothing is removed or registered again, and reports go on.
func TestNextAgentKeepsRegistrations(t *testing.T) {
	inDiscovery(t, func(w *registering) {
		w.serve(registeredDefinition())
		before := w.wantHealth(cluster.HealthHealthy)
		for range 3 {
			w.restart()
			w.pass(20 * time.Second)
		}
		after := w.wantHealth(cluster.HealthHealthy)
		if after.Reports < before.Reports+6 {
			t.Errorf("%d reports before and %d after a minute with restarts", before.Reports, after.Reports)
		}
		if r, d := w.countCalls("register"), w.countCalls("deregister"); r != 1 || d != 0 {
			t.Errorf("it was registered %d times and deregistered %d times, want 1 and 0: %q", r, d, w.system.Calls())
		}
	})
}

// TestStopGoesOnInTheNextAgent ends the agent while a task leaves. The next agent removes the registration before TERM.
func TestStopGoesOnInTheNextAgent(t *testing.T) {
	inDiscovery(t, func(w *registering) {
		d := w.serve(registeredDefinition())
		w.system.Hang()
		w.requestStop(d, "")
		w.requestStop(d, "1.1")
		w.stop()
		if got, _ := w.signals(t); len(got) != 0 {
			t.Fatalf("it got %v before it had left", got)
		}
		w.system.Recover()
		w.start()
		w.pass(500 * time.Millisecond)
		w.wantHealth("")
		if got, _ := w.signals(t); len(got) != 0 {
			t.Errorf("it got %v in its shutdown delay", got)
		}
		w.pass(2 * time.Second)
		w.want("s1", cluster.StateCancelled, cluster.ReasonRollout)
	})
}

// TestLostRegistrationsAreMadeAgain has the system lose its data, and another program change a registration.
func TestLostRegistrationsAreMadeAgain(t *testing.T) {
	inDiscovery(t, func(w *registering) {
		w.serve(registeredDefinition())
		w.system.Lose()
		w.pass(11 * time.Second)
		e := w.wantHealth(cluster.HealthHealthy)
		e.Registration.Port = 1
		w.system.Put(e)
		w.pass(11 * time.Second)
		if e := w.wantHealth(cluster.HealthHealthy); e.Registration.Port != 30412 {
			t.Errorf("the port is %d, want that of the task again", e.Registration.Port)
		}
	})
}

// TestLeftOverRegistrationsAreRemoved has registrations of tasks that the node does not have: at the start, as a dead
// agent leaves them, and later. Registrations of others stay.
func TestLeftOverRegistrationsAreRemoved(t *testing.T) {
	inDiscovery(t, func(w *registering) {
		w.serve(registeredDefinition())
		w.stop()
		put := func(owner string, ids ...string) {
			for _, id := range ids {
				w.system.Put(fake.Entry{Owner: owner, Registration: discovery.Registration{ID: id, Name: "x"}})
			}
		}
		put("me", "berth-me-gone-0", "berth-me-s1-7", "another-form")
		put("other", "berth-me-gone-1", "berth-other-x-0")
		check := func(when string) {
			t.Helper()
			var ids []string
			for id := range w.system.Entries() {
				ids = append(ids, id)
			}
			slices.Sort(ids)
			if want := []string{"berth-me-gone-1", registration, "berth-other-x-0"}; !slices.Equal(ids, want) {
				t.Errorf("%s: the system has %q, want %q", when, ids, want)
			}
		}
		w.start()
		w.pass(time.Second)
		check("at the start")
		put("me", "berth-me-gone-0")
		w.pass(11 * time.Second)
		check("later")
	})
}

// TestOrphanKeepsItsRegistration has containers without a record, as after the loss of the agent's database. Their
// registration stays until the server says what they are.
func TestOrphanKeepsItsRegistration(t *testing.T) {
	inDiscovery(t, func(w *registering) {
		w.system.Put(fake.Entry{Owner: "me", Registration: discovery.Registration{ID: "berth-me-lost-0"}})
		w.stop()
		w.executor.mu.Lock()
		w.executor.runs["lost-0-1"] = &run{spec: executor.Spec{ID: "lost-0-1", Labels: map[string]string{
			"berth.task": "default.web.1.0", "berth.attempt": "1", "berth.uuid": "lost", "berth.node": "n1",
		}}, state: executor.StateRunning}
		w.executor.mu.Unlock()
		w.system.Put(fake.Entry{Owner: "me", Registration: discovery.Registration{ID: "berth-me-lost-0"}})
		w.start()
		w.pass(time.Minute)
		if _, ok := w.system.Entries()["berth-me-lost-0"]; !ok {
			t.Errorf("the registration of a running orphan was removed: %q", w.system.Calls())
		}
	})
}

// TestDiscoveryProblemIsAFact has the system fail. The facts of the node say so until it works again. Then everything
// that changed meanwhile is made up for.
func TestDiscoveryProblemIsAFact(t *testing.T) {
	inDiscovery(t, func(w *registering) {
		w.pass(time.Second)
		want := func(problem string) {
			t.Helper()
			got := w.agent.machine.Facts().Discovery
			if diff := cmp.Diff(cluster.DiscoveryFact{Name: "fake", Version: "1", Problem: problem}, got); diff != "" {
				t.Errorf("facts (-want +got):\n%s", diff)
			}
		}
		want("")
		w.system.Fail()
		w.serve(registeredDefinition())
		w.pass(10 * time.Second)
		want(fake.ErrDown.Error())
		w.wantHealth("")
		w.system.Recover()
		w.pass(6 * time.Second)
		want("")
		w.wantHealth(cluster.HealthHealthy)
	})
}

// TestSystemThatIsDownAtTheStart starts the agent before the system.
func TestSystemThatIsDownAtTheStart(t *testing.T) {
	inDiscovery(t, func(w *registering) {
		w.stop()
		w.system.Fail()
		w.start()
		w.serve(registeredDefinition())
		w.want("s1", cluster.StateRunning, "")
		w.system.Recover()
		w.pass(6 * time.Second)
		w.wantHealth(cluster.HealthHealthy)
	})
}

// TestLostAnswers loses every second answer. The registration is right in the end, and goes before TERM.
func TestLostAnswers(t *testing.T) {
	inDiscovery(t, func(w *registering) {
		var calls atomic.Int32
		w.system.After(func(string) error {
			if calls.Add(1)%2 == 0 {
				return errors.New("connection reset by peer")
			}
			return nil
		})
		d := w.serve(registeredDefinition())
		w.pass(10 * time.Second)
		w.wantHealth(cluster.HealthHealthy)
		w.stopTask(d, false)
		w.pass(2 * time.Second)
		w.wantHealth("")
	})
}

// TestRefusedRegistrationHoldsUpNoOther has the system refuse one service of two, as for a token that permits only the
// other one.
func TestRefusedRegistrationHoldsUpNoOther(t *testing.T) {
	inDiscovery(t, func(w *registering) {
		w.system.Before(func(_ context.Context, call string) error {
			if call == "register "+registration {
				return errors.New("permission denied")
			}
			return nil
		})
		def := registeredDefinition()
		def.Discovery.Consul = append(def.Discovery.Consul, cluster.ConsulService{Name: "front"})
		def.SetDefaults()
		w.serve(def)
		w.pass(10 * time.Second)
		e, ok := w.system.Entries()["berth-me-s1-1"]
		if !ok || e.Registration.Name != "front" {
			t.Errorf("the system has %+v, want front", w.system.Entries())
		}
		if p := w.agent.machine.Facts().Discovery.Problem; !strings.Contains(p, "default.web.1.0: permission denied") {
			t.Errorf("the problem is %q, want the task and the reason", p)
		}
		before := e.Reports
		w.pass(time.Minute)
		if after := w.system.Entries()["berth-me-s1-1"].Reports; after < before+6 {
			t.Errorf("the other one had %d reports in a minute", after-before)
		}
	})
}

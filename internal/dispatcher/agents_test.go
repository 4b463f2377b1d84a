package dispatcher_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/agent"
	nodemachine "github.com/berthd/berth/internal/agent/machine"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/dispatcher"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/fake"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
	"github.com/berthd/berth/internal/transport"
	"github.com/berthd/berth/internal/transport/transporttest"
)

// Addresses of the two servers of a pair.
const one, two = "http://one:7071", "http://two:7071"

// pair is a fixture with two servers on a network, and real agents with the addresses of both.
type pair struct {
	*fixture
	net    *transporttest.Network
	second *other
}

func inPair(t *testing.T, do func(t *testing.T, w *pair)) {
	t.Helper()
	withFixture(t, func(t *testing.T, f *fixture) {
		p := &pair{fixture: f, net: transporttest.New(), second: f.second(memory.Hooks{})}
		p.serve(one, f.Dispatcher)
		p.serve(two, p.second.Dispatcher)
		do(t, p)
	})
}

func (w *pair) serve(address string, d *dispatcher.Dispatcher) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: transport.Handler(d), Protocols: protocols, ReadHeaderTimeout: time.Second}
	transport.ConfigureServer(s)
	w.net.Serve(w.t, address, s)
}

// node is a machine with an agent.
type node struct {
	machine *fake.Machine
	client  *transport.Client
	stop    func()
}

// agent starts an agent with a machine of its own.
func (w *pair) agent(name string, addresses ...string) *node {
	w.t.Helper()
	client, err := transport.NewClient(transport.ClientConfig{Addresses: addresses, Dial: w.net.Dial})
	if err != nil {
		w.t.Fatal(err)
	}
	n := &node{machine: fake.NewMachine(), client: client}
	a, err := agent.New(agent.Config{
		Name: name, DataDir: w.t.TempDir(), Volatile: true, Source: agent.FromClient(client),
		Executors: []executor.Executor{fake.New(n.machine)}, Logger: slog.New(slog.DiscardHandler),
		Clock:   agent.ClockConfig{Boot: func() time.Duration { return time.Hour + w.clock() }},
		Machine: nodemachine.Config{Facts: func(string) (cluster.Facts, error) { return machine, nil }},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	var runs sync.WaitGroup
	runs.Go(func() {
		if err := a.Run(ctx); err != nil {
			w.t.Error(err)
		}
	})
	n.stop = sync.OnceFunc(func() {
		cancel()
		runs.Wait()
		client.Close()
	})
	w.t.Cleanup(n.stop)
	return n
}

func (w *pair) pass(d time.Duration) {
	time.Sleep(d) // in-bubble: inWorld makes one
	synctest.Wait()
}

func (w *pair) observed() cluster.Observed {
	w.t.Helper()
	row, ok := w.now().Attempt(task, 1)
	if !ok || row.Observed == nil {
		w.t.Fatal("nothing is known of the attempt")
	}
	return *row.Observed
}

// wantOne demands that the program runs, and was started once.
func (n *node) wantOne(t *testing.T) {
	t.Helper()
	if runs := n.machine.History(); len(runs) != 1 || !runs[0].Ended.IsZero() {
		t.Errorf("runs of the program: %+v, want one that continues", runs)
	}
}

// The server of an agent is killed, and then the next. The agent soon connects to a living one. Its task continues, and
// its changes are reported.
func TestAgentsMoveWithoutTouchingTasks(t *testing.T) {
	inPair(t, func(t *testing.T, w *pair) {
		n := w.agent("n1", one, two)
		w.pass(time.Second)
		w.placeTask("n1")
		w.pass(5 * time.Second)
		if o := w.observed(); o.State != cluster.StateRunning {
			t.Fatalf("before: %+v", o)
		}
		for range 3 {
			at := n.client.Server()
			w.net.Stop(at)
			w.pass(2 * time.Second)
			if now := n.client.Server(); now == at {
				t.Fatalf("two seconds after its end the agent is still with %s", at)
			}
			w.serve(at, map[string]*dispatcher.Dispatcher{one: w.Dispatcher, two: w.second.Dispatcher}[at])
			w.pass(time.Second)
			n.wantOne(t)
			if w.Holds("n1") == w.second.Holds("n1") {
				t.Errorf("held by the first server: %v, by the second: %v", w.Holds("n1"), w.second.Holds("n1"))
			}
		}
		if err := n.machine.End(n.machine.History()[0].ID, cluster.Exit{Code: 3}); err != nil {
			t.Fatal(err)
		}
		w.pass(2 * time.Second)
		if o := w.observed(); o.State != cluster.StateFailed || o.Session < 4 {
			t.Errorf("after its end: %+v, want it failed in the fourth session or later", o)
		}
		for kind, want := range map[string]int{"task.running": 1, "node.joined": 1, "node.contested": 0} {
			if got := w.countEvents(kind); got != want {
				t.Errorf("%s was published %d times, want %d", kind, got, want)
			}
		}
	})
}

// A task that ends while no server answers is reported to the next server.
func TestNoReportIsLost(t *testing.T) {
	inPair(t, func(t *testing.T, w *pair) {
		n := w.agent("n1", one, two)
		w.pass(time.Second)
		w.placeTask("n1")
		w.pass(5 * time.Second)
		w.net.Stop(one)
		w.net.Stop(two)
		w.pass(time.Second)
		if err := n.machine.End(n.machine.History()[0].ID, cluster.Exit{Code: 3}); err != nil {
			t.Fatal(err)
		}
		w.pass(time.Minute)
		w.serve(two, w.second.Dispatcher)
		w.pass(15 * time.Second)
		if o := w.observed(); o.State != cluster.StateFailed || len(o.Containers) != 1 || o.Containers[0].Exit == nil ||
			o.Containers[0].Exit.Code != 3 {
			t.Errorf("after the servers are back: %+v, want exit 3", o)
		}
	})
}

// An agent may stop for half a minute, as by SIGSTOP. It then receives the changes of that time, and keeps its session.
func TestAgentStoppedForHalfAMinute(t *testing.T) {
	inPair(t, func(t *testing.T, w *pair) {
		client, err := transport.NewClient(transport.ClientConfig{Addresses: []string{one, two}, Dial: w.net.Dial})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		welcome, err := client.Register(t.Context(), transport.Registration{Node: "n1"})
		if err != nil {
			t.Fatal(err)
		}
		stream, err := client.Assignments(t.Context(),
			transport.AssignmentsRequest{Node: "n1", Session: welcome.Session})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = stream.Close() }()
		if m, err := stream.Next(t.Context()); err != nil || !m.Synced {
			t.Fatalf("first message: %+v %v", m, err)
		}
		w.placeTask("n1")
		w.pass(30 * time.Second)
		var assigned bool
		for !assigned {
			m, err := stream.Next(t.Context())
			if err != nil {
				t.Fatalf("the stream ended while the agent was stopped: %v", err)
			}
			assigned = m.Assignment != nil
		}
		if _, err := client.Report(t.Context(),
			transport.Report{Node: "n1", Session: welcome.Session, Seq: 1}); err != nil {
			t.Errorf("the first report after half a minute: %v", err)
		}
	})
}

// Two agents of one name stop displacing each other, and an event reports them.
func TestTwoAgentsOfOneName(t *testing.T) {
	inPair(t, func(t *testing.T, w *pair) {
		w.agent("n1", one, two)
		w.agent("n1", two, one)
		w.pass(10 * time.Minute)
		first := w.now()
		e, _ := first.NodeStatus("n1")
		w.pass(10 * time.Minute)
		last, _ := w.now().NodeStatus("n1")
		if n := last.Value.Session - e.Value.Session; n > 20 {
			t.Errorf("%d sessions in ten minutes, want a few", n)
		}
		if n := w.countEvents("node.contested"); n == 0 || n > 40 {
			t.Errorf("it was published %d times", n)
		}
	})
}

// An agent leaves a server whose network falls silent, and sends its pending report to the other one.
func TestAgentLeavesASilentServer(t *testing.T) {
	inPair(t, func(t *testing.T, w *pair) {
		n := w.agent("n1", one, two)
		w.pass(time.Second)
		w.placeTask("n1")
		w.pass(10 * time.Second)
		at := n.client.Server()
		w.net.Cut(at)
		if err := n.machine.End(n.machine.History()[0].ID, cluster.Exit{Code: 3}); err != nil {
			t.Fatal(err)
		}
		w.pass(15 * time.Second)
		if n.client.Server() == at {
			t.Errorf("the agent is still with the silent server")
		}
		if o := w.observed(); o.State != cluster.StateFailed {
			t.Errorf("after the move: %+v", o)
		}
	})
}

// All agents report together while the store stalls. The reports wait, none is refused, and all are written when the
// store continues.
func TestFullQueue(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		const nodes = 300
		for i := range nodes {
			f.register(nodeName(i))
		}
		f.engine.Crash()
		answered := make(chan error, nodes)
		for i := range nodes {
			go func() {
				_, err := f.report(nodeName(i), 1, 1,
					cluster.Observed{
						Task: cluster.ServiceTask("c", "s", 1, i), Attempt: 1, UUID: nodeName(i),
						State: cluster.StateRunning,
					})
				answered <- err
			}()
		}
		brief, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := f.Report(brief,
			transport.Report{Node: nodeName(0), Session: 1, Seq: 2, Facts: &machine}); !errors.Is(err,
			context.DeadlineExceeded) && !errors.Is(err, store.ErrUnknown) {
			t.Errorf("a caller that waits no longer: got %v", err)
		}
		time.Sleep(time.Minute) // in-bubble: inWorld makes one
		if len(answered) != 0 {
			t.Fatalf("%d reports were answered by a store that stalls", len(answered))
		}
		for i := range nodes {
			if p, _ := f.tables.Pulse(nodeName(i)); f.clock() > p.At+p.Next {
				t.Fatalf("%s counts as silent while it waits", nodeName(i))
			}
		}
		f.engine.Restart()
		for range nodes {
			if err := <-answered; err != nil {
				t.Fatal(err)
			}
		}
		taken := 0
		for row := range f.now().AllAttempts() {
			if row.Observed != nil {
				taken++
			}
		}
		if taken != nodes {
			t.Errorf("%d of %d reports were written", taken, nodes)
		}
	})
}

func nodeName(i int) string {
	return "n" + string(rune('a'+i/100)) + string(rune('a'+i/10%10)) + string(rune('a'+i%10))
}

// An agent that does not read its stream delays no other. Changes are merged meanwhile, and it receives the latest
// state.
func TestSlowReader(t *testing.T) {
	withFixture(t, func(t *testing.T, f *fixture) {
		f.register("n1")
		f.register("n2")
		id := f.placeTask("n1")
		row, _ := f.now().Attempt(task, 1)
		gate := make(chan struct{})
		var got received
		blocked := make(chan struct{})
		first := sync.OnceFunc(func() {
			close(blocked)
			<-gate
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- f.Assign(ctx, transport.AssignmentsRequest{Node: "n1", Session: 1},
				func(ms []transport.Message) error {
					first()
					return got.take(ms)
				})
		}()
		<-blocked
		for i := range 50 {
			d := *row.Desired
			d.Priority = i
			if i == 49 {
				d.Stop = &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonCancelled}
			}
			f.put(p.Desired("n1", task), &d)
			if _, err := f.report("n2", 1, uint64(i+1)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.report("n1", 1, 1, observed(id, cluster.StatePreparing)); err != nil {
			t.Fatal(err)
		}
		close(gate)
		synctest.Wait()
		if assigned, stopped, _ := got.count(); assigned != 1 || stopped != 1 {
			t.Errorf("the agent was sent %d assignments and %d stops, want one of each", assigned, stopped)
		}
		cancel()
		<-ended
	})
}

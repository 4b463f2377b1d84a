package machine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/clitest"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

func gateTask(id, node string, change func(*api.TaskView)) api.TaskView {
	t := api.TaskView{
		ID: api.TaskID(id), UUID: "u-" + id, Generation: 3, Node: node, State: cluster.StateRunning,
		Health: cluster.HealthHealthy, Owner: api.OwnerRef{Kind: cluster.KindService, Cluster: "default", Name: "web"},
	}
	if change != nil {
		change(&t)
	}
	return t
}

// gateFleet is a fake server whose tasks change.
type gateFleet struct {
	*clitest.Fake
	t *testing.T
}

func newGateFleet(t *testing.T, tasks ...api.TaskView) (*gateFleet, *taskGate) {
	t.Helper()
	f := &gateFleet{clitest.NewFake(), t}
	t.Cleanup(f.Close)
	c, err := client.New(client.Config{Addr: f.URL})
	if err != nil {
		t.Fatal(err)
	}
	f.States = []clitest.State{stateOf(tasks)}
	return f, &taskGate{client: c, limit: testkit.Scaled(10 * time.Second), settle: 50 * time.Millisecond}
}

func stateOf(tasks []api.TaskView) clitest.State {
	return clitest.State{
		Tasks: tasks,
		Nodes: []api.NodeView{
			{Name: "n1", State: cluster.NodeReady, Session: 7}, {Name: "n2", State: cluster.NodeDown},
		},
	}
}

// set changes the tasks, and wakes those who follow them.
func (f *gateFleet) set(g *taskGate, tasks ...api.TaskView) {
	f.t.Helper()
	f.Mutex.Lock()
	f.States = []clitest.State{f.States[0], stateOf(tasks)}
	f.Mutex.Unlock()
	if _, err := g.client.Node(f.t.Context(), "n1"); err != nil { // a read of an object shows the next state
		f.t.Fatal(err)
	}
}

// TestGate lets a node pass whose tasks are as before, or become so, and no other.
func TestGate(t *testing.T) {
	t.Parallel()
	good, failing := gateTask("a", "n1", nil), gateTask("a", "n1", func(t *api.TaskView) {
		t.Health, t.Message = cluster.HealthFailing, "connection refused"
	})
	pending := gateTask("p", "n1", func(t *api.TaskView) { t.State = cluster.StatePreparing })
	f, g := newGateFleet(t, good, pending, gateTask("other", "n2", nil))
	if session, err := g.Begin(t.Context(), "n1"); err != nil || session != 7 {
		t.Fatalf("got %d, %v", session, err)
	}
	if _, err := g.Begin(t.Context(), "n2"); err == nil || !strings.Contains(err.Error(), "node n2 is down") {
		t.Errorf("a node that is down may be upgraded: %v", err)
	}
	f.set(g, good)
	if err := g.Pass(t.Context(), "n1"); err != nil {
		t.Errorf("nothing changed: %v", err)
	}

	f.set(g, failing)
	ended := make(chan error, 1)
	go func() { ended <- g.Pass(t.Context(), "n1") }()
	f.set(g, good)
	if err := <-ended; err != nil {
		t.Errorf("the task is healthy again: %v", err)
	}

	g.limit = 100 * time.Millisecond
	f.set(g, failing)
	err := g.Pass(t.Context(), "n1")
	if !errors.Is(err, errUnwell) || !strings.Contains(err.Error(), "task a is no longer healthy: connection refused") {
		t.Errorf("got %v", err)
	}
}

// TestGateSettles fails a node whose task becomes worse soon after its upgrade.
func TestGateSettles(t *testing.T) {
	t.Parallel()
	f, g := newGateFleet(t, gateTask("a", "n1", nil))
	if _, err := g.Begin(t.Context(), "n1"); err != nil {
		t.Fatal(err)
	}
	g.settle = testkit.Scaled(time.Minute)
	g.limit = testkit.Scaled(2*time.Second) - g.settle // the whole wait ends after two seconds
	time.AfterFunc(100*time.Millisecond, func() {
		f.set(g, gateTask("a", "n1", func(t *api.TaskView) { t.Restarts = 1 }))
	})
	if err := g.Pass(t.Context(), "n1"); err == nil || !strings.Contains(err.Error(), "task a was restarted") {
		t.Errorf("got %v", err)
	}
}

// TestWorseThan names what an upgrade may have done to a task, and nothing that its owner did.
func TestWorseThan(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*api.TaskView)
		want   string
	}{
		{"as before", nil, ""},
		{
			"replaced", func(t *api.TaskView) { t.UUID, t.State = "u-2", cluster.StateStarting },
			"was replaced: it is starting",
		},
		{
			"lost", func(t *api.TaskView) { t.State, t.Message = cluster.StateLost, "node n1 fell silent" },
			"is lost: node n1 fell silent",
		},
		{"restarted", func(t *api.TaskView) { t.Restarts++ }, "was restarted"},
		{"a missed check", func(t *api.TaskView) { t.Health = cluster.HealthWarning }, ""},
		{"rolled out", func(t *api.TaskView) { t.UUID, t.Generation = "u-2", 4 }, ""},
		{"stopped by its owner", func(t *api.TaskView) { t.State = cluster.StateStopping }, ""},
		{"a finished job", func(t *api.TaskView) { t.State = cluster.StateSucceeded }, ""},
		{"a failed job", func(t *api.TaskView) { t.State, t.Owner.Kind = cluster.StateFailed, cluster.KindJob }, ""},
		{"a failed service", func(t *api.TaskView) { t.State = cluster.StateFailed }, "is failed"},
	} {
		got := worseThan(gateTask("a", "n1", nil), gateTask("a", "n1", c.change))
		if c.want == "" && got != "" || !strings.HasSuffix(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

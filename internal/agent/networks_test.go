package agent

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/internal/agent/network"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// fakeNetworks are the networks of a test's machine.
type fakeNetworks struct {
	mu     sync.Mutex
	lacks  string          // for bridge
	fail   error           // of the next Join
	exists map[string]bool // by UUID
	calls  []string
	tasks  []network.Task
}

func (n *fakeNetworks) record(what string) { n.calls = append(n.calls, what) }

func (n *fakeNetworks) Facts(context.Context) []cluster.NetworkFact {
	n.mu.Lock()
	defer n.mu.Unlock()
	return []cluster.NetworkFact{{Mode: cluster.NetworkBridge, Lacks: n.lacks}, {Mode: cluster.NetworkNone}}
}

func (n *fakeNetworks) Join(_ context.Context, t network.Task) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.fail; err != nil {
		n.fail = nil
		return "", err
	}
	if !n.exists[t.UUID] {
		n.record("made " + t.UUID)
		n.tasks = append(n.tasks, t)
		n.exists[t.UUID] = true
	}
	return "/net/" + t.UUID, nil
}

func (n *fakeNetworks) Leave(_ context.Context, uuid string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.exists[uuid] {
		n.record("removed " + uuid)
		delete(n.exists, uuid)
	}
	return nil
}

func (n *fakeNetworks) Sweep(_ context.Context, known func(string) bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for uuid := range n.exists { // order-free: the tests have one that is unknown
		if !known(uuid) {
			n.record("swept " + uuid)
			delete(n.exists, uuid)
		}
	}
	return nil
}

func (n *fakeNetworks) Close() error { return nil }

func (n *fakeNetworks) want(t *testing.T, story ...string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.calls, story) {
		t.Errorf("the networks recorded %q, want %q", n.calls, story)
	}
}

// inNetworks runs a test on a machine with networks and a definition of two containers that uses one.
func inNetworks(t *testing.T, mode cluster.NetworkMode,
	test func(w *world, n *fakeNetworks, def *cluster.TaskDefinition),
) {
	inWorld(t, func(w *world) {
		n := &fakeNetworks{exists: map[string]bool{}}
		w.networks = n
		w.restart()
		def := definition("web", "app", "side")
		def.Network = mode
		if mode == cluster.NetworkBridge {
			def.Ports = []cluster.Port{{Name: "http", To: 80}, {Name: "admin"}}
		}
		test(w, n, def)
	})
}

func portsOf(d cluster.Desired) cluster.Desired {
	d.Ports = map[string]int{"http": 30001, "admin": 30002}
	return d
}

// The network is made once, before the first container, for all of them. It outlives restarts of containers and of the
// agent, and is removed with the rest of the attempt.
func TestNetworkOfAnAttempt(t *testing.T) {
	inNetworks(t, cluster.NetworkBridge, func(w *world, n *fakeNetworks, def *cluster.TaskDefinition) {
		w.executor.programs["app"] = program{Runs: time.Minute, Code: 1}
		d := portsOf(w.desired("s1", def, cluster.KindService))
		w.assign(d, def)
		w.want("s1", cluster.StateRunning, "")
		n.want(t, "made s1")
		if got := n.tasks[0]; got.Mode != cluster.NetworkBridge ||
			!slices.Equal(got.Ports, []network.Port{{Node: 30002, Inside: 30002}, {Node: 30001, Inside: 80}}) {
			t.Errorf("requested %+v", got)
		}
		for _, id := range []string{"s1-0-1", "s1-1-1"} {
			spec := w.executor.runs[executor.ID(id)].spec
			if spec.Network != "/net/s1" {
				t.Errorf("%s is in the network %q", id, spec.Network)
			}
			for _, want := range []string{
				"PORT_HTTP=80", "ADDR_HTTP=10.0.0.1:30001", "PORT_ADMIN=30002",
				"BERTH_NETWORK=bridge",
			} {
				if !slices.Contains(spec.Env, want) {
					t.Errorf("%s got %q, want %s", id, spec.Env, want)
				}
			}
		}
		w.restart()
		w.pass(2 * time.Minute)
		if w.executor.runs["s1-0-2"] == nil {
			t.Error("it was not restarted in place")
		}
		n.want(t, "made s1")
		w.stopTask(d, true)
		w.pass(time.Minute)
		n.want(t, "made s1", "removed s1")
	})
}

// A machine without networks rejects such tasks; none of them runs in the node's own network.
func TestNetworkThatLacks(t *testing.T) {
	inNetworks(t, cluster.NetworkBridge, func(w *world, n *fakeNetworks, def *cluster.TaskDefinition) {
		n.lacks = "no plugins"
		w.restart()
		w.assign(portsOf(w.desired("s1", def, cluster.KindService)), def)
		if o := w.want("s1", cluster.StateRejected, cluster.ReasonNetwork); o.Message != "network bridge: no plugins" {
			t.Errorf("message %q", o.Message)
		}
		w.networks = nil
		w.restart()
		w.assign(portsOf(w.desired("s2", def, cluster.KindService)), def)
		w.want("s2", cluster.StateRejected, cluster.ReasonNetwork)
		w.wantEffects()
		n.want(t)
	})
}

// A failure is retried by the restart policy.
func TestNetworkThatFails(t *testing.T) {
	inNetworks(t, cluster.NetworkNone, func(w *world, n *fakeNetworks, def *cluster.TaskDefinition) {
		n.fail = errors.New("no address is left")
		w.service("s1", def)
		if o := w.want("s1", cluster.StatePreparing, cluster.ReasonPrepare); o.Message == "" {
			t.Error("it does not say what failed")
		}
		w.pass(10 * time.Second)
		w.want("s1", cluster.StateRunning, "")
		n.want(t, "made s1")
	})
}

// Networks without a known attempt are removed at the start of the agent; the others stay.
func TestNetworksAreSwept(t *testing.T) {
	inNetworks(t, cluster.NetworkNone, func(w *world, n *fakeNetworks, def *cluster.TaskDefinition) {
		w.service("s1", def)
		w.stop()
		n.exists["lost"] = true
		w.start()
		n.want(t, "made s1", "swept lost")
	})
}

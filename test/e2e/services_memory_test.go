package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/test/harness"
)

// mebibytes returns an amount of memory in the form of the program task's environment.
func mebibytes(n int) string { return fmt.Sprint(n << 20) }

// TestShortMemoryMovesTheVictim makes a node with two tasks short of memory, by its own thresholds. The task that uses
// much moves to another node as soon as there is one, before the kernel acts, and answers all the time.
func TestShortMemoryMovesTheVictim(t *testing.T) {
	t.Parallel()
	needLimits(t)
	w := newServiceFleet(t, harness.Process, 1, 0)
	hosts := w.spare(2)
	w.Agent(hosts[0], "--pressure-free", "100")
	reserve := func(memory cluster.Bytes) func(*api.TaskDefinition, *api.Service) {
		return func(d *api.TaskDefinition, _ *api.Service) { d.Containers[0].Resources.Memory = memory }
	}
	w.put(served{
		name: "greedy", version: 1, count: 1, env: map[string]string{"GREED": mebibytes(96)},
		more: reserve(160 << 20),
	})
	w.put(served{name: "modest", version: 1, count: 1, more: reserve(160 << 20)})
	w.completes("greedy", 1)
	w.completes("modest", 1)
	w.awaitEvent("node.pressure", "n1", "memory")
	stop := w.sendRequests("greedy", 1, nil)

	// While there is nowhere to go, it stays.
	first := running(t, w.Site, "greedy", 1)[0]
	// The agent selects the task to move from its newest sample. A sample from before the task took its memory selects
	// another task.
	w.Eventually(soon, func() error {
		node, err := w.client.Node(t.Context(), "n1")
		if err != nil {
			return err
		}
		if node.Used == nil || node.Used.Pressure == nil || node.Used.Pressure.Task != first.ID {
			return fmt.Errorf("the node does not say that %s is to move: %+v", first.ID, node.Used)
		}
		return nil
	})
	w.Agent(hosts[1])
	w.Eventually(soon, func() error {
		live := alive(w.Site, "greedy")
		if len(live) != 1 || live[0].Node != "n2" || live[0].Health != cluster.HealthHealthy {
			return fmt.Errorf("it has not moved: %v", nodesOf(live))
		}
		return nil
	})
	stop()
	event := w.awaitEvent("task.moving", string(first.ID))
	if event.Reason != cluster.ReasonPressure || !strings.Contains(event.Message, "memory") {
		t.Errorf("the event of its move is %+v", event)
	}
	page, err := w.client.Events(t.Context(), client.EventOptions{Types: []string{"task.moving"}},
		client.ListOptions{Limit: 1000})
	if err != nil || len(page.Items) == 0 || page.Items[0].Task != first.ID {
		t.Errorf("what moved first is not the one that uses the most: %+v, %v", page.Items, err)
	}
	for _, task := range w.Tasks(client.TaskFilter{Service: "greedy"}) {
		if task.Reason == cluster.ReasonOOM || task.Restarts > 0 {
			t.Errorf("%s attempt %d: %s, %d restarts", task.ID, task.Attempt, task.Reason, task.Restarts)
		}
	}
}

// nodesOf returns the nodes and states of tasks.
func nodesOf(tasks []api.TaskView) (where []string) {
	for _, v := range tasks {
		where = append(where, fmt.Sprintf("%s on %s: %s %s", v.ID, v.Node, v.State, v.Health))
	}
	return where
}

// short is the message for a service that needs more memory than its limit. For a task that lived for ten minutes each
// time, the message names a leak.
const short = "memory limit reached: tasks killed"

// TestKernelKillIsNoCrash expects different reports of a service that leaks until the kernel kills it, and one that
// crashes.
func TestKernelKillIsNoCrash(t *testing.T) {
	t.Parallel()
	needLimits(t)
	w := newServiceFleet(t, harness.Process, 1, 1)
	again := func(d *api.TaskDefinition, _ *api.Service) {
		d.Restart = cluster.Restart{
			Mode: cluster.RestartAlways, Limit: 50,
			Delay: cluster.Duration(100 * time.Millisecond), MaxDelay: cluster.Duration(time.Second),
		}
		d.Checks = nil
		d.MinHealthyTime = cluster.Duration(100 * time.Millisecond)
		d.Containers[0].Resources.Memory = 64 << 20
	}
	w.put(served{name: "leaky", version: 1, count: 1, env: map[string]string{"LEAK": mebibytes(20)}, more: again})
	w.put(served{name: "crashes", version: 1, count: 1, more: func(d *api.TaskDefinition, s *api.Service) {
		again(d, s)
		d.Containers[0].Command = []string{"sh", "-c", "echo cannot find the configuration >&2; exit 3"}
		d.MinHealthyTime = cluster.Duration(time.Minute) // it never runs for so long, however slow the machine is
	}})
	w.Eventually(2*soon, func() error {
		v, err := w.client.Service(t.Context(), cluster.DefaultCluster, "leaky")
		if err == nil && !strings.Contains(v.Status.MemoryTrouble, short) {
			err = fmt.Errorf("it is %s: %q", v.Status.State, v.Status.MemoryTrouble)
		}
		return err
	})
	w.Berth("status", "service/leaky").Want(t, 0, short)
	w.Berth("explain", "leaky").Want(t, 0, short)
	w.Eventually(2*soon, func() error {
		r := w.Berth("explain", "crashes")
		for _, word := range []string{"is crash-looping", "cannot find the configuration"} {
			if !strings.Contains(r.Stdout, word) {
				return fmt.Errorf("want %q:\n%v", word, r)
			}
		}
		return nil
	})
	for service, oom := range map[string]bool{"leaky": true, "crashes": false} {
		seen := false
		for _, task := range w.Tasks(client.TaskFilter{Service: service}) {
			for _, c := range task.Containers {
				seen = seen || c.OOMs > 0 || c.Exit != nil && c.Exit.OOM
			}
			seen = seen || task.Reason == cluster.ReasonOOM
		}
		if seen != oom {
			t.Errorf("%s was killed by the kernel: %v, want %v", service, seen, oom)
		}
	}
	if r := w.Berth("explain", "crashes"); strings.Contains(r.Stdout, short) {
		t.Errorf("what crashes is said to want memory: %v", r)
	}
}

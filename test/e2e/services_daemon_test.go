package e2e_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/test/harness"
)

const daemon = `
kind: TaskDefinition
name: watcher
version: %[1]d
containers:
  - name: main
    command: [sh, -c, 'while :; do sleep 1000; done']
    resources: {cpu: 1m, memory: 16MiB}
min_healthy_time: 300ms
grace: 1s
---
kind: Service
name: watcher
definition: watcher@%[1]d
mode: daemon
placement:
  constraints: [{attribute: label.watched, value: "yes"}]
`

// TestDaemon has a service with one task on each node of a kind.
func TestDaemon(t *testing.T) {
	t.Parallel()
	f := harness.NewFleet(t)
	hosts := harness.Loopback(5)
	f.Start(hosts[0])
	watched := []string{"--label", "watched=yes"}
	f.Agent(hosts[1], watched...)
	f.Agent(hosts[2], watched...)
	f.Agent(hosts[3])
	// awaitOn waits until a version has a healthy task on each of the nodes, and nowhere else.
	awaitOn := func(version int, nodes ...string) {
		t.Helper()
		f.Eventually(soon, func() error {
			var on []string
			for _, task := range alive(f.Site, "watcher") {
				if task.State == cluster.StatePending {
					continue // of a node that is drained
				}
				if task.Health != cluster.HealthHealthy || task.Definition.Version != version {
					return fmt.Errorf("%s of %s on %s is %s %s", task.ID, task.Definition, task.Node, task.State,
						task.Health)
				}
				on = append(on, task.Node)
			}
			slices.Sort(on)
			if !slices.Equal(on, nodes) {
				return fmt.Errorf("it runs on %v, want %v", on, nodes)
			}
			return nil
		})
	}
	f.Berth("run", f.Write("v1.yaml", fmt.Sprintf(daemon, 1))).Want(t, 0, "2/2")
	awaitOn(1, "n1", "n2")

	// A new node gets a task, and the existing tasks continue.
	before := alive(f.Site, "watcher")
	f.Agent(hosts[4], watched...)
	awaitOn(1, "n1", "n2", "n4")
	now := alive(f.Site, "watcher")
	samePids(t, before, slices.DeleteFunc(now, func(v api.TaskView) bool { return v.Node == "n4" }))

	// A cordon does not keep it away; a drain takes it at the end.
	f.Berth("node", "cordon", "n1").Want(t, 0)
	f.Berth("restart", "service/watcher").Want(t, 0)
	f.Eventually(soon, func() error { return replaced(now, alive(f.Site, "watcher")) })
	awaitOn(1, "n1", "n2", "n4")
	f.Berth("node", "uncordon", "n1").Want(t, 0)

	// It is rolled out node by node: at most one node is without a healthy task.
	f.Berth("run", "--detach", f.Write("v2.yaml", fmt.Sprintf(daemon, 2))).Want(t, 0)
	c := f.Client()
	f.Eventually(soon, func() error {
		page, err := c.Tasks(t.Context(), client.TaskFilter{Service: "watcher"}, client.ListOptions{})
		if err != nil {
			return err
		}
		well, rolled := map[string]bool{}, 0
		for _, task := range page.Items {
			if task.Health == cluster.HealthHealthy {
				well[task.Node] = true
				if task.Definition.Version == 2 {
					rolled++
				}
			}
		}
		if len(well) < 2 {
			t.Errorf("it is healthy only on %v", well)
		}
		if rolled < 3 {
			return fmt.Errorf("%d of 3 are rolled", rolled)
		}
		return nil
	})
	awaitOn(2, "n1", "n2", "n4")
	f.Berth("node", "drain", "n2", "--wait").Want(t, 0, "n2 is empty")
	awaitOn(2, "n1", "n4")
	f.Berth("node", "uncordon", "n2").Want(t, 0)
	awaitOn(2, "n1", "n2", "n4")
}

package controlplane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// node returns the control plane's verdict on a node.
func node(s *store.Snapshot, name string) cluster.Node {
	if e, ok := s.Node(name); ok {
		return *e.Value
	}
	return cluster.Node{}
}

// countOn counts the attempts that are on a node.
func countOn(s *store.Snapshot, name string) int {
	n := 0
	for row := range s.NodeAttempts(name) {
		if row.Standing() {
			n++
		}
	}
	return n
}

// healthyTasks counts the tasks with a healthy attempt without a stop; a moving attempt counts, too.
func healthyTasks(s *store.Snapshot) int {
	tasks := map[cluster.TaskID]bool{}
	for row := range s.AllAttempts() {
		if row.Observed.Healthy() && row.Desired != nil && row.Desired.Stop == nil {
			tasks[row.Task] = true
		}
	}
	return len(tasks)
}

// trackLeast wraps a condition and keeps the least number of healthy tasks of the service in n while a test waits.
func trackLeast(w *world, n *int, holds func(*store.Snapshot) bool) func(*store.Snapshot) bool {
	return func(s *store.Snapshot) bool {
		*n = min(*n, healthyTasks(s))
		return holds(s)
	}
}

// Ports that the operator reserves go to no task from the next cycle on. A task that has one keeps it until it leaves,
// and its replacement waits with the port in the reason.
func TestReservedPortsOfTheOperator(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.put(p.Definition(cluster.Ref{Name: "d", Version: 1}), &cluster.TaskDefinition{
			Name: "d", Version: 1, Containers: []cluster.Container{{Name: "main", Image: "app:1"}},
			Ports: []cluster.Port{{Name: "http", Port: 8080}},
		})
		w.service(1, 1, 1)
		up := func(s *store.Snapshot) bool { return healthy(s, 1) == 1 }
		w.until(10*time.Second, "healthy", up)
		w.put(p.Host("n1"), &cluster.Host{Name: "n1", ReservedPorts: []cluster.PortRange{"8000-8100"}})
		end := time.Now().Add(10 * time.Second)
		w.until(20*time.Second, "the time is over", func(s *store.Snapshot) bool {
			if !up(s) {
				t.Fatal("the task with the port is not healthy any more")
			}
			return time.Now().After(end)
		})
		if n := len(slices.Collect(w.server.tables.Snapshot().AllAttempts())); n != 1 {
			t.Errorf("%d attempts, want the one that has the port", n)
		}
		w.service(0, 1, 1)
		w.until(10*time.Second, "nothing is left", func(s *store.Snapshot) bool { return countRecords(s) == 0 })
		w.service(1, 1, 2)
		w.until(10*time.Second, "the next task waits for a port", func(*store.Snapshot) bool {
			return strings.Contains(fmt.Sprintf("%+v", w.server.plane.Reasons(0)), "port 8080 reserved")
		})
		w.put(p.Host("n1"), &cluster.Host{Name: "n1", ReservedPorts: []cluster.PortRange{"8081-8100"}})
		w.until(10*time.Second, "healthy again", func(s *store.Snapshot) bool { return healthy(s, 2) == 1 })
	})
}

// A drained node gives up its tasks one by one, each for a healthy one elsewhere, and takes tasks again afterwards.
func TestDrainedNodeIsEmptied(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 500)
		w.service(3, 1, 1)
		w.until(10*time.Second, "3 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 3 })
		w.node("n2")
		fewest := 3
		w.put(p.Host("n1"), &cluster.Host{Name: "n1", Drain: &cluster.Drain{Since: time.Now()}})
		w.until(30*time.Second, "n1 is drained", trackLeast(w, &fewest, func(s *store.Snapshot) bool {
			return node(s, "n1").State == cluster.NodeDrained && countOn(s, "n1") == 0 && countOn(s, "n2") == 3 &&
				healthy(s, 1) == 3
		}))
		if fewest < 3 {
			t.Errorf("healthy tasks while the node was drained: at least %d, want 3", fewest)
		}
		w.put(p.Host("n1"), &cluster.Host{Name: "n1", Cordon: true})
		w.until(5*time.Second, "n1 is ready", func(s *store.Snapshot) bool {
			return node(s, "n1").State == cluster.NodeReady
		})
		w.service(4, 1, 1)
		w.until(20*time.Second, "4 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 4 })
		if n := countOn(w.server.tables.Snapshot(), "n1"); n != 0 {
			t.Errorf("%d tasks were placed on a cordoned node", n)
		}
		w.put(p.Host("n1"), &cluster.Host{Name: "n1"})
		w.service(6, 1, 1)
		w.until(20*time.Second, "n1 has tasks again", func(s *store.Snapshot) bool {
			return healthy(s, 1) == 6 && countOn(s, "n1") > 0
		})
	})
}

// Tasks that have nowhere to go stay; the node and an event contain the reason, and nothing is lost when the drain is
// revoked. At the deadline they are stopped.
func TestDrainWithNowhereToGo(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.node("n1")
		w.definition(1, 500)
		w.service(2, 1, 1)
		w.until(10*time.Second, "2 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 })
		w.put(p.Host("n1"), &cluster.Host{Name: "n1", Drain: &cluster.Drain{Since: time.Now()}})
		const want = "2 of them have no feasible node: 1 node: not ready (draining)"
		w.until(5*time.Second, "the node says why", func(s *store.Snapshot) bool {
			return strings.Contains(node(s, "n1").Reason, want)
		})
		time.Sleep(time.Minute) // in-bubble: inWorld makes one
		s := w.server.tables.Snapshot()
		if healthy(s, 1) != 2 || eventCounts(s)["node.draining"] > 3 {
			t.Errorf("after a minute: %d healthy, %d events of the drain", healthy(s, 1),
				eventCounts(s)["node.draining"])
		}
		w.put(p.Host("n1"), &cluster.Host{Name: "n1"})
		w.until(5*time.Second, "n1 is ready", func(s *store.Snapshot) bool {
			return node(s, "n1").State == cluster.NodeReady
		})
		if len(a.effects) != 2 || healthy(w.server.tables.Snapshot(), 1) != 2 {
			t.Errorf("%d starts of programs, want the first 2", len(a.effects))
		}
		w.put(p.Host("n1"), &cluster.Host{
			Name:  "n1",
			Drain: &cluster.Drain{Deadline: time.Now().Add(30 * time.Second)},
		})
		time.Sleep(25 * time.Second) // in-bubble: inWorld makes one
		if n := healthy(w.server.tables.Snapshot(), 1); n != 2 {
			t.Errorf("%d healthy before the deadline, want 2", n)
		}
		w.until(15*time.Second, "what is left is stopped", func(s *store.Snapshot) bool {
			return node(s, "n1").State == cluster.NodeDrained && countOn(s, "n1") == 0
		})
	})
}

// A task that lives after KILL makes its node drain: the other tasks leave.
func TestUnkillableTaskDrainsItsNode(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 500)
		w.service(2, 1, 1)
		w.until(10*time.Second, "2 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 })
		w.node("n2")
		task := cluster.ServiceTask("c", "web", 1, 0)
		row, _ := w.server.tables.Snapshot().Attempt(task, 1)
		stuck := *row.Observed
		stuck.State, stuck.Health, stuck.Reason = cluster.StateStopping, "", cluster.ReasonUnkillable
		w.put(p.Observed("n1", task), &stuck)
		w.until(20*time.Second, "the other task moved", func(s *store.Snapshot) bool {
			return node(s, "n1").State == cluster.NodeDraining && countOn(s, "n2") > 0 &&
				strings.Contains(node(s, "n1").Reason, "still running after SIGKILL")
		})
	})
}

// P6.3: tasks of a node that is gone run elsewhere immediately, whatever their class, and the node is forgotten. If it
// returns after all it is a new node, and its former tasks are stopped.
func TestForgottenNodeReturns(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		lost := w.node("n1")
		w.definition(1, 500)
		w.put(p.Service("c", "web"), &cluster.Service{
			Cluster: "c", Name: "web", Count: 2, Definition: cluster.Ref{Name: "d", Version: 1}, Priority: 500,
			OnDisconnect: cluster.DisconnectWait, Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now()},
		})
		w.until(10*time.Second, "2 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 })
		w.node("n2")
		lost.kill()
		time.Sleep(10 * time.Minute) // in-bubble: inWorld makes one
		if s := w.server.tables.Snapshot(); countOn(s, "n2") != 0 || node(s, "n1").State != cluster.NodeDown {
			t.Errorf("%d tasks of class wait were replaced; n1 is %s", countOn(s, "n2"), node(s, "n1").State)
		}
		w.put(p.Host("n1"), &cluster.Host{Name: "n1", Gone: true})
		w.until(15*time.Second, "n1 is forgotten", func(s *store.Snapshot) bool {
			_, host := s.Host("n1")
			_, status := s.NodeStatus("n1")
			_, judged := s.Node("n1")
			return !host && !status && !judged && healthy(s, 1) == 2 && countOn(s, "n2") == 2
		})
		if _, ok := w.server.tables.Pulse("n1"); ok {
			time.Sleep(2 * time.Second) // in-bubble: inWorld makes one
			if _, ok := w.server.tables.Pulse("n1"); ok {
				t.Error("the pulse of a forgotten node is kept")
			}
		}
		lost.run()
		w.until(20*time.Second, "n1 is a node again, and empty", func(s *store.Snapshot) bool {
			return node(s, "n1").State == cluster.NodeReady && countOn(s, "n1") == 0 && healthy(s, 1) == 2
		})
		if _, ok := w.server.tables.Snapshot().Recovery(cluster.DefaultDomain); ok {
			t.Error("the return of a forgotten node was taken for a store that went back")
		}
	})
}

// P6.7: lost tasks without another place go on when their node returns; the others are replaced.
func TestLostTasksGoOnWithoutAnotherPlace(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.node("n1")
		w.definition(1, 1000)
		w.service(4, 1, 1)
		w.until(10*time.Second, "4 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 4 })
		other := w.node("n2")
		w.definition(2, 3000)
		w.put(p.Service("c", "side"), &cluster.Service{
			Cluster: "c", Name: "side", Count: 1, Definition: cluster.Ref{Name: "d", Version: 2}, Priority: 500,
			OnDisconnect: cluster.DisconnectKeep, Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now()},
		})
		w.until(10*time.Second, "n2 has room for one more", func(s *store.Snapshot) bool {
			return countOn(s, "n2") == 1
		})
		a.kill()
		w.until(2*time.Minute, "one task runs on the other node", func(s *store.Snapshot) bool {
			return countOn(s, "n2") == 2 && eventCounts(s)["task.lost"] == 4
		})
		a.run()
		w.until(20*time.Second, "4 healthy again", func(s *store.Snapshot) bool {
			return healthy(s, 1) == 4 && countOn(s, "n1") == 3
		})
		if n := eventCounts(w.server.tables.Snapshot())["task.reconnected"]; n != 3 {
			t.Errorf("%d tasks reconnected, want 3", n)
		}
		if len(a.effects) != 4 || len(other.effects) != 2 {
			t.Errorf("%d and %d starts of programs, want 4 and 2", len(a.effects), len(other.effects))
		}
	})
}

// A node that falls silent and returns again and again is delayed, and its tasks are not touched.
func TestFlappingNodeTakesNoNewTasks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.node("n1")
		w.definition(1, 500)
		w.service(1, 1, 1)
		w.until(10*time.Second, "healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 1 })
		for range 2 {
			a.kill()
			w.until(time.Minute, "n1 is suspect", func(s *store.Snapshot) bool {
				return node(s, "n1").State == cluster.NodeSuspect
			})
			a.run()
			w.until(10*time.Second, "n1 reports", func(s *store.Snapshot) bool {
				return node(s, "n1").Returns > 0 && healthy(s, 1) == 1
			})
		}
		back := time.Now()
		w.until(5*time.Second, "n1 is delayed", func(s *store.Snapshot) bool { return !node(s, "n1").Until.IsZero() })
		w.service(2, 1, 1)
		w.until(time.Minute, "2 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 })
		if held := time.Since(back); held < 25*time.Second {
			t.Errorf("it took a new task %v after its second return, want about 30s", held)
		}
		if len(a.effects) != 2 {
			t.Errorf("%d starts of programs, want 2", len(a.effects))
		}
	})
}

// P6.2: the operator may have tasks replaced in a mass silence.
func TestOperatorOverridesMassSilence(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var nodes []*agent
		for i := range 10 {
			nodes = append(nodes, w.node(fmt.Sprintf("n%d", i)))
		}
		w.until(5*time.Second, "all are ready", func(s *store.Snapshot) bool {
			return !slices.ContainsFunc(nodes, func(a *agent) bool {
				return node(s, a.name).State != cluster.NodeReady
			})
		})
		w.definition(1, 100)
		w.service(10, 1, 1)
		w.until(10*time.Second, "10 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 10 })
		for _, a := range nodes[:4] {
			a.kill()
		}
		time.Sleep(3 * time.Minute) // in-bubble: inWorld makes one
		if lost := eventCounts(w.server.tables.Snapshot())["task.lost"]; lost != 0 {
			t.Fatalf("%d tasks were given up in a mass silence", lost)
		}
		w.put(p.Domain(cluster.DefaultDomain), &cluster.Domain{
			Name: cluster.DefaultDomain, RescheduleUntil: time.Now().Add(time.Minute),
		})
		w.until(10*time.Second, "all run elsewhere", func(s *store.Snapshot) bool {
			n := 0
			for _, a := range nodes[4:] {
				n += countOn(s, a.name)
			}
			return n == 10 && eventCounts(s)["task.lost"] > 0
		})
	})
}

// Other servers get the reasons why tasks wait, in groups.
func TestReasonsInGroups(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 64_000)
		w.service(3, 1, 1)
		var version uint64
		w.until(5*time.Second, "they wait", func(*store.Snapshot) bool {
			r := w.server.plane.Reasons(0)
			version = r.Version
			return len(r.Groups) == 1 && r.Groups[0].Count() == 3 &&
				r.Groups[0].Sentence == "1 node: CPU short by 60 CPUs"
		})
		if r := w.server.plane.Reasons(version); r.Version != version || r.Groups != nil {
			t.Errorf("the version that was asked after: got %d and %d groups", r.Version, len(r.Groups))
		}
		w.definition(2, 100)
		w.service(3, 2, 1)
		w.until(10*time.Second, "none waits", func(*store.Snapshot) bool {
			r := w.server.plane.Reasons(version)
			return r.Version > version && len(r.Groups) == 0
		})
	})
}

// The tasks of a service with on_disconnect wait leave drained nodes one after the other.
func TestDrainOfClassWaitKeepsAllButOne(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 500)
		w.put(p.Service("c", "web"), &cluster.Service{
			Cluster: "c", Name: "web", Count: 4, Definition: cluster.Ref{Name: "d", Version: 1}, Priority: 500,
			OnDisconnect: cluster.DisconnectWait, Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now()},
		})
		w.until(10*time.Second, "4 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 4 })
		w.node("n2")
		fewest := 4
		w.put(p.Host("n1"), &cluster.Host{Name: "n1", Drain: &cluster.Drain{Since: time.Now()}})
		w.until(time.Minute, "n1 is drained", trackLeast(w, &fewest, func(s *store.Snapshot) bool {
			return node(s, "n1").State == cluster.NodeDrained && countOn(s, "n1") == 0 && countOn(s, "n2") == 4 &&
				healthy(s, 1) == 4
		}))
		if fewest != 3 {
			t.Errorf("healthy tasks while the node was drained: at least %d, want 3", fewest)
		}
	})
}

// A live node is forgotten: its tasks run elsewhere. It comes back by itself, as a new and empty node.
func TestForgottenNodeThatLives(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 500)
		w.service(2, 1, 1)
		w.until(10*time.Second, "2 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 })
		w.node("n2")
		w.until(10*time.Second, "n2 is ready", func(s *store.Snapshot) bool {
			return node(s, "n2").State == cluster.NodeReady
		})
		w.put(p.Host("n1"), &cluster.Host{Name: "n1", Gone: true})
		w.until(15*time.Second, "n1 is forgotten, and what ran on it runs elsewhere", func(s *store.Snapshot) bool {
			_, host := s.Host("n1")
			return !host && healthy(s, 1) == 2 && countOn(s, "n2") == 2
		})
		w.until(30*time.Second, "n1 is a node again, and empty", func(s *store.Snapshot) bool {
			return node(s, "n1").State == cluster.NodeReady && countOn(s, "n1") == 0 && healthy(s, 1) == 2 &&
				countRecords(s) == 2
		})
		s := w.server.tables.Snapshot()
		if n := node(s, "n1"); n.Returns != 0 {
			t.Errorf("the new node returned %d times already, want 0", n.Returns)
		}
		if _, ok := s.Recovery(cluster.DefaultDomain); ok {
			t.Error("its return was taken for a store that went back")
		}
	})
}

package controlplane_test

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// definition writes version v of the definition "d", which requests some CPU.
func (w *world) definition(v int, cpu cluster.MilliCPU) {
	w.put(p.Definition(cluster.Ref{Name: "d", Version: v}), &cluster.TaskDefinition{
		Name: "d", Version: v, Containers: []cluster.Container{
			{Name: "main", Image: "i", Resources: cluster.Resources{CPU: cpu}},
		},
	})
}

func (w *world) service(count, version int, generation uint64) {
	w.put(p.Service("c", "web"), &cluster.Service{
		Cluster: "c", Name: "web", Count: count, Definition: cluster.Ref{Name: "d", Version: version}, Priority: 500,
		OnDisconnect: cluster.DisconnectKeep, Lifespan: cluster.Lifespan{Generation: generation, Created: time.Now()},
	})
}

func (w *world) job(count, retries int) {
	w.put(p.Job("c", "batch"), &cluster.Job{
		Cluster: "c", Name: "batch", Priority: 500, Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now()},
		Steps: []cluster.Step{{
			Name: "work", Definition: cluster.Ref{Name: "d", Version: 1}, Count: count,
			Retries: retries,
		}},
	})
}

// healthy counts the healthy tasks of a generation of the service.
func healthy(s *store.Snapshot, generation uint64) int {
	n := 0
	for row := range s.Attempts(cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"}) {
		parts, _ := row.Task.Parts()
		if parts.Generation == generation && row.Outcome == nil && row.Observed.Healthy() {
			n++
		}
	}
	return n
}

// succeeded counts the tasks of the job with a succeeded outcome.
func succeeded(s *store.Snapshot) int {
	n := 0
	for row := range s.Attempts(cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "batch"}) {
		if row.Outcome != nil && row.Outcome.State == cluster.StateSucceeded {
			n++
		}
	}
	return n
}

// countRecords counts the desired records and plan placements that are left.
func countRecords(s *store.Snapshot) int {
	n := 0
	for row := range s.AllAttempts() {
		if row.Standing() {
			n++
		}
	}
	return n
}

func TestServiceComesUpScalesAndGoes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.node("n2")
		w.definition(1, 500)
		w.service(3, 1, 1)
		w.until(10*time.Second, "3 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 3 })
		w.service(5, 1, 1)
		w.until(10*time.Second, "5 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 5 })
		w.service(2, 1, 1)
		w.until(20*time.Second, "2 left", func(s *store.Snapshot) bool {
			return healthy(s, 1) == 2 && countRecords(s) == 2
		})
		w.put(p.Service("c", "web"), &cluster.Service{
			Cluster: "c", Name: "web", Count: 2, Definition: cluster.Ref{Name: "d", Version: 1},
			Lifespan: cluster.Lifespan{Generation: 1, Deleted: true},
		})
		w.until(20*time.Second, "the deleted service is gone without a trace", func(s *store.Snapshot) bool {
			_, there := s.Service("c", "web")
			for range s.AllAttempts() {
				return false
			}
			return !there
		})
	})
}

func TestRolloutKeepsTheCountHealthy(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.node("n2")
		w.definition(1, 100)
		w.definition(2, 100)
		w.service(4, 1, 1)
		w.until(time.Minute, "4 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 4 })
		w.service(4, 2, 2)
		least := 4
		w.until(time.Minute, "4 of generation 2", func(s *store.Snapshot) bool {
			least = min(least, healthy(s, 1)+healthy(s, 2))
			return healthy(s, 2) == 4 && healthy(s, 1) == 0 && countRecords(s) == 4
		})
		if least < 4 {
			t.Errorf("healthy tasks during the rollout: at least %d, want 4", least)
		}
	})
}

func TestJobRunsToSuccessWithARetry(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.node("n1")
		a.fails = func(task cluster.TaskID, attempt int) bool {
			return task == cluster.JobTask("c", "batch", 1, "work", 3) && attempt == 1
		}
		w.definition(1, 500)
		w.job(8, 1)
		w.until(time.Minute, "8 succeeded", func(s *store.Snapshot) bool {
			return succeeded(s) == 8 && countRecords(s) == 0
		})
		if n := len(a.effects); n != 9 {
			t.Errorf("attempts that ran: got %d, want 9", n)
		}
		for id, n := range a.effects {
			if n != 1 {
				t.Errorf("attempt %s ran %d times", id, n)
			}
		}
	})
}

// A node that rejects a task gets no later attempt of it while another node has room: neither of a service nor of a
// job. The outcome keeps the cause.
func TestRejectedTasksArePlacedElsewhere(t *testing.T) {
	const cause = "port 8080 is used by pid 812 (nginx), which listens at 0.0.0.0:8080 over TCP"
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1", func(a *agent) { a.rejects = func(cluster.TaskID) string { return cause } })
		w.node("n2")
		w.until(10*time.Second, "both nodes are ready", func(s *store.Snapshot) bool {
			return node(s, "n1").State == cluster.NodeReady && node(s, "n2").State == cluster.NodeReady
		})
		w.definition(1, 100)
		w.service(4, 1, 1)
		w.until(time.Minute, "4 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 4 })
		w.job(4, 0)
		rejected := map[cluster.TaskID]int{}
		w.until(time.Minute, "4 succeeded", func(s *store.Snapshot) bool {
			clear(rejected)
			for row := range s.AllAttempts() {
				o := row.Outcome
				if o == nil || o.State != cluster.StateRejected {
					continue
				}
				rejected[row.Task]++
				if o.Node != "n1" || o.Reason != cluster.ReasonPortTaken || o.Message != cause || row.Number != 1 {
					t.Fatalf("attempt %d of %s ended with %+v", row.Number, row.Task, *o)
				}
			}
			return succeeded(s) == 4
		})
		if len(rejected) == 0 {
			t.Error("no task was rejected: the test shows nothing")
		}
	})
}

// A decision that was refused because a record changed is made again, even if the change itself needs no decision.
func TestRefusedStopIsDecidedAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1", endless)
		w.definition(1, 500)
		var refuse atomic.Bool
		w.server.stop()
		w.faulty = w.engine.Open(memory.Hooks{Before: func(ctx context.Context, groups []store.Group) error {
			for _, g := range groups {
				for _, op := range g.Ops {
					if !bytes.Contains(op.Value, []byte(`"stop":`)) || !refuse.CompareAndSwap(true, false) {
						continue
					}
					was, err := w.engine.Read(ctx, op.Key)
					if err != nil {
						return err
					}
					// the record with the same content
					_, err = w.engine.Commit(ctx, []store.Group{{Ops: []store.Op{{Key: op.Key, Value: was.Value}}}})
					return err
				}
			}
			return nil
		}})
		w.start()
		w.job(1, 0)
		w.until(time.Minute, "the task runs", func(s *store.Snapshot) bool {
			return countRunning(s, theJob, "n1") == 1
		})
		time.Sleep(2 * controlplane.ProjectAfter) // in-bubble: inWorld makes one
		refuse.Store(true)
		e, _ := w.server.tables.Snapshot().Job("c", "batch")
		cancelled := *e.Value
		cancelled.Cancelled = true
		w.put(p.Job("c", "batch"), &cancelled)
		w.until(10*time.Second, "the task has ended", func(s *store.Snapshot) bool {
			return countRunning(s, theJob, "n1") == 0 && countRecords(s) == 0
		})
		if refuse.Load() {
			t.Error("no stop was refused")
		}
	})
}

// An ended job and its outcomes are removed once the cluster has kept them for as long as it says, also by a new
// leader.
func TestEndedJobExpires(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 500)
		w.put(p.Cluster("c"), &cluster.Cluster{
			Name: "c", Domain: cluster.DefaultDomain,
			KeepJobs: cluster.Duration(time.Hour),
		})
		w.job(3, 0)
		w.until(time.Minute, "3 succeeded", func(s *store.Snapshot) bool {
			return succeeded(s) == 3 && countRecords(s) == 0
		})
		ended := time.Now()
		w.server.stop()
		w.start()
		gone := func(s *store.Snapshot) bool {
			_, exists := s.Job("c", "batch")
			return !exists
		}
		w.until(time.Minute, "the new leader knows the job", func(s *store.Snapshot) bool { return !gone(s) })
		w.until(2*time.Hour, "the job is gone", gone)
		if after := time.Since(ended); after < 59*time.Minute || after > 61*time.Minute {
			t.Errorf("the job was removed %v after its end, want 1h", after)
		}
		w.until(time.Minute, "nothing is left of it", func(s *store.Snapshot) bool {
			return succeeded(s) == 0 && countRecords(s) == 0
		})
	})
}

// A job that does not end within its deadline is cancelled, also by a new leader.
func TestOverdueJobIsCancelled(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.definition(1, 500)
		began := time.Now().UTC()
		w.put(p.Job("c", "batch"), &cluster.Job{
			Cluster: "c", Name: "batch", Priority: 500, Deadline: cluster.Duration(time.Hour), Submitted: began,
			Lifespan: cluster.Lifespan{Generation: 1, Created: began, Updated: began},
			Steps:    []cluster.Step{{Name: "work", Definition: cluster.Ref{Name: "d", Version: 1}, Count: 1}},
		})
		cancelled := func(s *store.Snapshot) bool {
			e, ok := s.Job("c", "batch")
			return ok && e.Value.Cancelled && e.Value.CancelReason == cluster.ReasonDeadline
		}
		w.until(time.Minute, "the job is known", func(s *store.Snapshot) bool {
			_, exists := s.Job("c", "batch")
			return exists
		})
		w.server.stop()
		w.start()
		w.until(2*time.Hour, "the job is cancelled", cancelled)
		if after := time.Since(began); after < 59*time.Minute || after > 61*time.Minute {
			t.Errorf("the job was cancelled %v after its submission, want 1h", after)
		}
	})
}

func TestWaitingTasksHaveAReason(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.definition(1, 500)
		w.service(1, 1, 1)
		task := cluster.ServiceTask("c", "web", 1, 0)
		var last string
		defer func() { t.Log("the last reason:", last) }()
		why := func(want string) func(*store.Snapshot) bool {
			return func(*store.Snapshot) bool {
				got, ok := w.server.plane.Waiting(task)
				last = got.Sentence
				return ok && got.Sentence == want
			}
		}
		w.until(5*time.Second, "waits for a node", why("no node has joined yet"))
		w.definition(2, 64_000)
		w.service(1, 2, 1)
		w.node("n1")
		w.until(5*time.Second, "waits for room", why("1 node: CPU short by 60 CPUs"))
	})
}

// The tasks of a silent node run elsewhere after the limit. When the node returns, its replaced attempts are stopped.
func TestSilentNodeIsReplaced(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		lost := w.node("n1")
		w.definition(1, 500)
		w.service(2, 1, 1)
		w.until(10*time.Second, "2 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 })
		w.node("n2")
		lost.kill()
		began := time.Now()
		w.until(3*time.Minute, "2 healthy on n2", func(s *store.Snapshot) bool {
			n := 0
			for row := range s.NodeAttempts("n2") {
				if row.Observed.Healthy() {
					n++
				}
			}
			return n == 2
		})
		if took := time.Since(began); took < time.Minute {
			t.Errorf("replaced after %v, before the limit of silence", took)
		}
		lost.run()
		w.until(time.Minute, "n1 is cleaned up", func(s *store.Snapshot) bool {
			for row := range s.NodeAttempts("n1") {
				if row.Standing() {
					return false
				}
			}
			return healthy(s, 1) == 2
		})
	})
}

// T14: a desired record that was written over is written back, and the task never runs elsewhere (P3.5, P3.9).
func TestForeignRecordIsRepaired(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%v", restart), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a := w.node("n1")
				w.node("n2")
				w.definition(1, 500)
				w.service(1, 1, 1)
				w.until(10*time.Second, "healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 1 })
				task := cluster.ServiceTask("c", "web", 1, 0)
				row, _ := w.server.tables.Snapshot().Attempt(task, 1)
				node, id := row.Node, row.Desired.UUID
				w.until(time.Minute, "projected", func(s *store.Snapshot) bool {
					r, ok := s.Attempt(task, 1)
					return ok && r.DesiredRev != 0 && r.PlanRev == 0
				})
				if restart {
					w.server.stop()
				}
				w.raw(p.Desired(node, task), []byte("not a record"))
				if restart {
					w.start()
				}
				w.until(time.Minute, "the record is back", func(s *store.Snapshot) bool {
					r, ok := s.Attempt(task, 1)
					return ok && r.DesiredRev != 0 && !r.IsUnreadable() && r.Desired != nil && r.Desired.UUID == id &&
						r.Desired.Node == node
				})
				ran := len(a.effects) + len(w.agents[1].effects)
				if ran != 1 {
					t.Errorf("the task's program was started %d times, want once", ran)
				}
			})
		})
	}
}

// A server that is killed and restarted continues where it was.
func TestRestartOfTheServer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.node("n1")
		w.definition(1, 100)
		w.service(3, 1, 1)
		w.job(20, 0)
		for range 5 {
			time.Sleep(130 * time.Millisecond) // in-bubble: inWorld makes one
			w.server.stop()
			w.start()
		}
		w.until(time.Minute, "all as wanted", func(s *store.Snapshot) bool {
			return healthy(s, 1) == 3 && succeeded(s) == 20
		})
		for id, n := range a.effects {
			if n != 1 {
				t.Errorf("attempt %s was started %d times", id, n)
			}
		}
	})
}

// A node whose registration was deleted is silent: its tasks run elsewhere after the limit. A node without any record
// is forgotten.
func TestNodeWithoutRegistrationIsSilent(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		lost := w.node("n1")
		w.definition(1, 500)
		w.service(2, 1, 1)
		w.until(10*time.Second, "2 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 })
		w.node("n2")
		lost.kill()
		w.remove(p.NodeStatus("n1"))
		w.until(3*time.Minute, "2 healthy on n2", func(s *store.Snapshot) bool {
			n := 0
			for row := range s.NodeAttempts("n2") {
				if row.Observed.Healthy() {
					n++
				}
			}
			return n == 2
		})
	})
}

// eventCounts returns the number of events of each type.
func eventCounts(s *store.Snapshot) map[string]int {
	byType := map[string]int{}
	for b := range s.EventBatches() {
		for _, e := range b.Value.Events {
			byType[e.Type]++
		}
	}
	return byType
}

// When many nodes fall silent together no task is replaced. The beginning and the end are published (P6.2).
func TestMassSilencePausesReplacement(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var nodes []*agent
		for i := range 10 {
			nodes = append(nodes, w.node(fmt.Sprintf("n%d", i)))
		}
		w.definition(1, 100)
		w.service(10, 1, 1)
		w.until(10*time.Second, "10 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 10 })
		for _, a := range nodes[:4] {
			a.kill()
		}
		w.until(2*time.Minute, "the silence is published", func(s *store.Snapshot) bool {
			return eventCounts(s)["node.mass-silence"] == 1
		})
		time.Sleep(5 * time.Minute) // in-bubble: inWorld makes one
		if lost := eventCounts(w.server.tables.Snapshot())["task.lost"]; lost != 0 {
			t.Errorf("%d tasks were given up in a mass silence", lost)
		}
		for _, a := range nodes[:4] {
			a.run()
		}
		w.until(time.Minute, "the end is published", func(s *store.Snapshot) bool {
			return eventCounts(s)["node.mass-silence-over"] == 1 && healthy(s, 1) == 10
		})
	})
}

// TestWaitingTasksAreOfTheLeader stops a leader while a task waits. Its server then counts no waiting task.
func TestWaitingTasksAreOfTheLeader(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := &counts{}
		w.server.stop()
		w.metrics = g
		w.start()
		w.definition(1, 100)
		w.service(1, 1, 1)
		w.until(10*time.Second, "a task that waits", func(*store.Snapshot) bool { return g.waiting.Load() == 1 })
		w.server.stop()
		if n := g.waiting.Load(); n != 0 {
			t.Errorf("%d tasks wait on a server that does not lead", n)
		}
		w.start()
	})
}

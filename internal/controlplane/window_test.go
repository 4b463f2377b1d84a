package controlplane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/window"
	"github.com/berthd/berth/internal/store"
)

// inLongQueues is inWorld with a leader whose placements consider four requests of jobs.
func inLongQueues(t *testing.T, do func(t *testing.T, w *world)) {
	t.Helper()
	inWorld(t, func(t *testing.T, w *world) {
		w.server.stop()
		w.window = window.Sizes{Most: 4, Head: 2, HeadLeast: 1, Turns: 2}
		w.start()
		do(t, w)
	})
}

// steps writes the job NAME with one step for each version of the definition. No two have equal requests.
func (w *world) steps(name string, priority cluster.Priority, versions ...int) {
	w.t.Helper()
	job := &cluster.Job{
		Cluster: "c", Name: name, Priority: priority, Submitted: time.Now(),
		Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now(), Updated: time.Now()},
	}
	for i, v := range versions {
		job.Steps = append(job.Steps, cluster.Step{
			Name: fmt.Sprintf("s%02d", i), Definition: cluster.Ref{Name: "d", Version: v}, Count: 1,
			TimeLimit: cluster.Duration(time.Duration(60+i) * time.Minute),
		})
	}
	w.put(p.Job("c", name), job)
}

// reasonOf returns why a step of the job NAME waits, or "".
func (w *world) reasonOf(name string, step int) string {
	why, _ := w.server.plane.Waiting(cluster.TaskID(fmt.Sprintf("c.%s.1.s%02d.0", name, step)))
	return why.Sentence
}

// TestTurnsOfALongQueue has a queue in which only the last request finds room. It has its turn, and so has a service
// that arrives later. All others have a reason, also under a new leader.
func TestTurnsOfALongQueue(t *testing.T) {
	inLongQueues(t, func(t *testing.T, w *world) {
		w.node("n1", func(a *agent) { a.endless = true })
		w.definition(1, 100)
		w.definition(2, 1_000_000)
		w.steps("large", 500, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1)
		// The first reason of all but those of the first window is that their turn is to come.
		w.until(time.Minute, "a reason for each", func(*store.Snapshot) bool { return w.reasonOf("large", 10) != "" })
		waits := func(s *store.Snapshot) bool {
			return holding(s) == 1 && w.waits(11, "large", "CPU short by")
		}
		w.until(time.Minute, "the last one runs", waits)
		if why := w.reasonOf("large", 11); why != "" {
			t.Fatalf("a task that runs waits: %s", why)
		}
		w.meanwhile = func() {
			for step := range 11 {
				if why := w.reasonOf("large", step); !strings.Contains(why, "CPU short by") {
					t.Fatalf("step %d waits: %q", step, why)
				}
			}
		}
		w.service(2, 1, 1)
		w.until(time.Minute, "the service is healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 })
		w.meanwhile = nil
		w.server.stop()
		w.start()
		w.until(time.Minute, "reasons of the new leader", waits)
		version := w.server.plane.Reasons(0).Version
		time.Sleep(time.Minute) // in-bubble: inWorld makes one
		if n := w.server.plane.Reasons(0).Version - version; n > 20 {
			t.Fatalf("%d placements in a minute without a change", n)
		}
		w.steps("more", 500, 2, 2, 2, 2)
		w.steps("other", 500, 2, 2)
		four := func() bool { return w.waits(4, "more", "CPU short by") }
		w.until(time.Minute, "a reason for each", func(*store.Snapshot) bool {
			return four() && w.waits(2, "other", "CPU short by")
		})
		w.remove(p.Job("c", "other"))
		w.until(time.Minute, "no reason of it is left", func(*store.Snapshot) bool {
			return w.reasonOf("other", 1) == "" && four()
		})
		w.remove(p.Job("c", "large")) // the queue is short now
		w.until(time.Minute, "four wait", func(*store.Snapshot) bool { return w.reasonOf("large", 10) == "" && four() })
		w.steps("last", 500, 2)
		w.until(time.Minute, "it is long again", func(*store.Snapshot) bool {
			return w.waits(1, "last", "CPU short by") && four()
		})
		w.remove(p.Job("c", "more"))
		w.remove(p.Job("c", "last"))
		w.until(time.Minute, "no reason is left", func(*store.Snapshot) bool {
			return len(w.server.plane.Reasons(0).Groups) == 0
		})
	})
}

// TestLongQueueBecomesShort runs all tasks of a long queue, also those whose turn came late. No task waits without a
// reason, while the queue is long and after.
func TestLongQueueBecomesShort(t *testing.T) {
	inLongQueues(t, func(t *testing.T, w *world) {
		w.definition(1, 1500)
		w.definition(2, 2500)
		w.steps("a", 500, 2, 2, 1, 1, 2, 1, 2, 2)
		w.steps("b", 500, 1, 2, 1, 2, 2, 1)
		w.until(time.Minute, "reasons", func(*store.Snapshot) bool { return w.reasonOf("b", 5) != "" })
		w.meanwhile = func() {
			for row := range w.server.tables.Snapshot().AllAttempts() {
				if parts, _ := row.Task.Parts(); row.Outcome == nil && row.Observed != nil &&
					w.reasonOf(parts.Owner, 0) != "" && parts.Step == "s00" {
					t.Fatalf("%s runs and waits", row.Task)
				}
			}
		}
		w.node("n1")
		w.until(10*time.Minute, "all succeeded", func(s *store.Snapshot) bool {
			ended := 0
			for row := range s.AllAttempts() {
				if row.Outcome != nil && row.Outcome.State == cluster.StateSucceeded {
					ended++
				}
			}
			return ended == 14
		})
		w.meanwhile = nil
		w.until(time.Minute, "no reason is left", func(*store.Snapshot) bool {
			return len(w.server.plane.Reasons(0).Groups) == 0
		})
	})
}

// TestPromisesInALongQueue keeps the room of a promise beyond the first requests of a long queue. Those can never run,
// as they need more than a node has. Tasks behind the one with the promise that run for longer get none of its room.
func TestPromisesInALongQueue(t *testing.T) {
	for between := range 4 { // the turns may come together
		keepPromiseInALongQueue(t, 5+between)
	}
}

func keepPromiseInALongQueue(t *testing.T, between int) {
	t.Helper()
	inLongQueues(t, func(t *testing.T, w *world) {
		limit := func(d time.Duration) func(*cluster.Step) {
			return func(s *cluster.Step) { s.TimeLimit = cluster.Duration(d) }
		}
		w.node("n1", endless)
		w.definition(1, 1000)
		w.definition(2, 1_000_000)
		w.definition(3, 4000)
		w.putEndlessJob("batch", 500, 2, 1, limit(10*time.Minute))
		w.until(10*time.Second, "tasks run", func(s *store.Snapshot) bool { return countRunning(s, theJob, "n1") == 2 })
		w.steps("m", 500, slices.Repeat([]int{2}, between)...)
		time.Sleep(time.Second) // in-bubble: inWorld makes one
		w.putEndlessJob("a", 500, 1, 3)
		w.until(time.Minute, "a promise", func(*store.Snapshot) bool { return w.promiseOf("c.a.1.work.0") != nil })
		time.Sleep(time.Second) // in-bubble: inWorld makes one
		w.putEndlessJob("z", 500, 2, 1, limit(time.Hour))
		w.until(15*time.Minute, "the task with the promise runs", func(s *store.Snapshot) bool {
			if countRunning(s, jobOf("z"), "") > 0 {
				t.Fatal("a task that runs for longer got the room")
			}
			return countRunning(s, jobOf("a"), "n1") == 1
		})
	})
}

func jobOf(name string) cluster.OwnerRef {
	return cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: name}
}

// TestVictimsInALongQueue gives the room of victims to the task that they end for, although it is beyond the first
// requests of a long queue, and not to a task that arrives while they end.
func TestVictimsInALongQueue(t *testing.T) {
	inLongQueues(t, func(t *testing.T, w *world) {
		n := w.node("n1", endless)
		n.lingers = func(cluster.TaskID) time.Duration { return 3 * time.Second }
		w.definition(1, 1000)
		w.definition(2, 1_000_000)
		w.definition(3, 3000)
		w.putEndlessJob("batch", 300, 4, 1)
		w.until(10*time.Second, "the node is full", func(s *store.Snapshot) bool {
			return countRunning(s, theJob, "n1") == 4
		})
		w.steps("m", 950, 2, 2, 2, 2, 2, 2)
		w.putEndlessJob("a", 900, 1, 3)
		w.until(time.Minute, "tasks end for it", func(s *store.Snapshot) bool {
			return countRunning(s, theJob, "n1") == 1
		})
		w.putEndlessJob("z", 310, 3, 1)
		w.until(time.Minute, "the urgent task runs", func(s *store.Snapshot) bool {
			if countRunning(s, jobOf("z"), "") > 0 {
				t.Fatal("another task got the room")
			}
			return countRunning(s, jobOf("a"), "n1") == 1
		})
		if n := eventCounts(w.server.tables.Snapshot())["task.preempted"]; n != 3 {
			t.Errorf("%d tasks ended, want 3", n)
		}
	})
}

// age has the job NAME wait for some time already, so that its tasks have risen in the queue.
func (w *world) age(name string, by time.Duration) {
	w.t.Helper()
	e, _ := w.server.tables.Snapshot().Job("c", name)
	job := *e.Value
	job.Submitted, job.Created, job.Updated = job.Submitted.Add(-by), job.Created.Add(-by), job.Updated.Add(-by)
	w.put(p.Job("c", name), &job)
}

// TestUrgentTaskBehindAgedOnes ends tasks for an urgent one that is behind a long queue of less urgent ones, which have
// waited for days and can never run.
func TestUrgentTaskBehindAgedOnes(t *testing.T) {
	for between := range 4 {
		inLongQueues(t, func(t *testing.T, w *world) {
			w.node("n1", endless)
			w.definition(1, 1000)
			w.definition(2, 1_000_000)
			w.putEndlessJob("batch", 100, 4, 1)
			w.until(10*time.Second, "the node is full", func(s *store.Snapshot) bool {
				return countRunning(s, theJob, "n1") == 4
			})
			for _, name := range []string{"m", "z"} {
				w.steps(name, 500, slices.Repeat([]int{2}, 21+between)...)
				w.until(time.Minute, "reasons", func(*store.Snapshot) bool {
					return w.waits(21+between, name, "CPU short by")
				})
				w.age(name, 60*time.Hour)
			}
			time.Sleep(time.Minute) // in-bubble: inWorld makes one
			w.putEndlessJob("urgent", 700, 1, 1)
			w.until(3*time.Second, "the urgent task runs", func(s *store.Snapshot) bool {
				return countRunning(s, urgent, "n1") == 1
			})
		})
	}
}

// TestReclaimInALongQueue gives a cluster the room of its quota back, although its task is behind the long queue of the
// cluster that borrowed it.
func TestReclaimInALongQueue(t *testing.T) {
	for between := range 4 {
		inLongQueues(t, func(t *testing.T, w *world) {
			w.node("n1", endless)
			w.definition(1, 1000)
			w.put(p.Cluster("c"), &cluster.Cluster{Name: "c", Domain: cluster.DefaultDomain, Quota: &cluster.Quota{
				CPU: 2000, Borrow: &cluster.QuotaBorrow{CPU: 4000},
			}})
			w.put(p.Cluster("b"), &cluster.Cluster{
				Name: "b", Domain: cluster.DefaultDomain, Quota: &cluster.Quota{CPU: 2000},
			})
			w.putEndlessJob("batch", 500, 4, 1)
			w.until(20*time.Second, "the node is full", func(s *store.Snapshot) bool {
				return countRunning(s, theJob, "n1") == 4
			})
			w.steps("m", 500, slices.Repeat([]int{1}, 41+between)...)
			time.Sleep(time.Minute) // in-bubble: inWorld makes one
			own := w.putEndlessJobOf("b", "own", 500, 1)
			w.until(3*time.Second, "the quota is back", func(s *store.Snapshot) bool {
				return countRunning(s, own, "n1") == 1
			})
		})
	}
}

// TestExternalSchedulerOfALongQueue checks that the turns of a long queue keep no leader busy that places nothing.
func TestExternalSchedulerOfALongQueue(t *testing.T) {
	inLongQueues(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.external().claim()
		w.definition(1, 1000)
		w.steps("m", 500, 1, 1, 1, 1, 1, 1, 1, 1)
		w.until(time.Minute, "reasons", func(*store.Snapshot) bool { return w.reasonOf("m", 7) != "" })
		version := w.server.plane.Reasons(0).Version
		time.Sleep(5 * time.Second) // in-bubble: inWorld makes one
		if n := w.server.plane.Reasons(0).Version - version; n > 10 {
			t.Fatalf("the reasons changed %d times in 5 s", n)
		}
	})
}

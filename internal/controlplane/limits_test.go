package controlplane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/reconciler"
	"github.com/berthd/berth/internal/store"
)

// limited writes the job NAME with a step of a concurrency group.
func (w *world) limited(name string, count int, c *cluster.Concurrency) {
	w.t.Helper()
	w.put(p.Job("c", name), &cluster.Job{
		Cluster: "c", Name: name, Priority: 500, Submitted: time.Now(),
		Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now(), Updated: time.Now()},
		Steps: []cluster.Step{{
			Name: "work", Definition: cluster.Ref{Name: "d", Version: 1}, Count: count, Concurrency: c, Retries: 3,
		}},
	})
}

// holding counts the attempts of the cluster's jobs that hold room.
func holding(s *store.Snapshot) (n int) {
	for row := range s.AllAttempts() {
		if parts, _ := row.Task.Parts(); parts.Step != "" && row.Number > 0 && row.Outcome == nil {
			n++
		}
	}
	return n
}

// TestQuotaOfACluster keeps to the quota of a cluster, also under a new leader, and places more once it is raised. A
// service with a quota that is lowered keeps its tasks.
func TestQuotaOfACluster(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1", func(a *agent) { a.endless = true })
		w.node("n2", func(a *agent) { a.endless = true })
		w.definition(1, 100)
		quota := func(q *cluster.Quota) {
			w.put(p.Cluster("c"), &cluster.Cluster{Name: "c", Domain: cluster.DefaultDomain, Quota: q})
		}
		most := 2
		w.meanwhile = func() {
			if n := holding(w.server.tables.Snapshot()); n > most {
				t.Fatalf("%d tasks hold room, and the quota is %d", n, most)
			}
		}
		quota(&cluster.Quota{Tasks: 2})
		w.job(5, 0)
		waits := func(n int, words string) {
			t.Helper()
			w.until(time.Minute, fmt.Sprintf("%d wait: %s", n, words), func(s *store.Snapshot) bool {
				return holding(s) == 5-n && w.waits(n, "batch", words)
			})
		}
		waits(3, "quota of cluster c: tasks 1 needed, 2 of 2 used")
		w.server.stop()
		w.start()
		waits(3, "quota of cluster c: tasks 1 needed, 2 of 2 used")
		time.Sleep(30 * time.Second) // in-bubble: inWorld makes one
		w.meanwhile()
		most = 4
		quota(&cluster.Quota{CPU: 450})
		waits(1, "quota of cluster c: cpu 100m needed, 400m of 450m used")
		quota(&cluster.Quota{CPU: 100})
		waits(1, "quota of cluster c: cpu 100m needed, 400m of 100m used")
		most = 5
		quota(nil)
		w.until(time.Minute, "all run", func(s *store.Snapshot) bool { return holding(s) == 5 })
	})
}

// A drain goes on under a full quota: the next attempt of a task counts beside the first, which waits for it.
func TestDrainUnderAFullQuota(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.node("n2")
		w.definition(1, 100)
		w.put(p.Cluster("c"), &cluster.Cluster{
			Name: "c", Domain: cluster.DefaultDomain, Quota: &cluster.Quota{Tasks: 3},
		})
		w.service(3, 1, 1)
		w.until(time.Minute, "healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 3 })
		w.put(p.Host("n1"), &cluster.Host{Name: "n1", Drain: &cluster.Drain{Since: time.Now()}})
		w.until(5*time.Minute, "all on the other node", func(s *store.Snapshot) bool {
			return countOn(s, "n1") == 0 && countOn(s, "n2") == 3 && healthy(s, 1) == 3
		})
	})
}

// TestConcurrencyGroup runs one task of a group at a time, although two jobs and a new leader want more, and tasks
// fail and are tried again.
func TestConcurrencyGroup(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for _, name := range []string{"n1", "n2", "n3"} {
			w.node(name, func(a *agent) {
				a.fails = func(task cluster.TaskID, attempt int) bool {
					parts, _ := task.Parts()
					return attempt == 1 && parts.Index%2 == 0
				}
			})
		}
		w.definition(1, 100)
		together := 0
		w.meanwhile = func() {
			if n := holding(w.server.tables.Snapshot()); n > 1 {
				t.Fatalf("%d tasks of the group hold room", n)
			} else {
				together = max(together, n)
			}
		}
		ended := func(state cluster.State) (n int) {
			for row := range w.server.tables.Snapshot().AllAttempts() {
				if row.Outcome != nil && row.Outcome.State == state {
					n++
				}
			}
			return n
		}
		w.limited("first", 3, &cluster.Concurrency{Group: "deploy", Limit: 1})
		w.limited("second", 3, &cluster.Concurrency{Group: "deploy", Limit: 1})
		w.until(time.Minute, "some ran", func(*store.Snapshot) bool {
			return ended(cluster.StateSucceeded) >= 2 && ended(cluster.StateFailed) >= 1
		})
		w.server.stop()
		w.start()
		w.until(5*time.Minute, "all succeeded", func(*store.Snapshot) bool {
			return ended(cluster.StateSucceeded) == 6
		})
		if together != 1 {
			t.Error("no task was seen to run")
		}
	})
}

// stepped writes a job of two steps, of which the second needs the first and may have a node, in a concurrency group of
// jobs.
func (w *world) stepped(name string, limit int, node string) *cluster.Job {
	w.t.Helper()
	step := func(name string, needs ...string) cluster.Step {
		return cluster.Step{
			Name: name, Definition: cluster.Ref{Name: "d", Version: 1}, Count: 2, Retries: 3, Needs: needs,
		}
	}
	job := &cluster.Job{
		Cluster: "c", Name: name, Priority: 500, Submitted: time.Now(),
		Lifespan:    cluster.Lifespan{Generation: 1, Created: time.Now(), Updated: time.Now()},
		Steps:       []cluster.Step{step("build"), step("publish", "build")},
		Concurrency: &cluster.Concurrency{Group: "deploy", Limit: limit},
	}
	if node != "" {
		job.Steps[1].Placement.Constraints = []cluster.Constraint{{Attribute: "node.name", Op: "=", Value: node}}
	}
	w.put(p.Job("c", name), job)
	return job
}

// TestJobLeavesItsGroup takes a job out of its group, in the transaction that changes its cluster, too. The next job of
// the group begins, while the first one runs.
func TestJobLeavesItsGroup(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1", endless)
		w.definition(1, 100)
		first := w.stepped("first", 1, "")
		w.until(10*time.Second, "the first job runs", func(s *store.Snapshot) bool { return holding(s) == 2 })
		w.stepped("second", 1, "")
		w.until(10*time.Second, "the second job waits", func(*store.Snapshot) bool {
			return w.waits(2, "second", "concurrency group deploy of jobs")
		})
		alone := *first
		alone.Concurrency = nil
		var group store.Group
		for key, record := range map[string]any{ // order-free: one transaction
			p.Job("c", "first"): &alone,
			p.Cluster("c"):      &cluster.Cluster{Name: "c", Domain: cluster.DefaultDomain},
		} {
			value, err := store.Encode(record)
			if err != nil {
				t.Fatal(err)
			}
			group.Ops = append(group.Ops, store.Op{Key: key, Value: value})
		}
		if _, err := w.engine.Commit(t.Context(), []store.Group{group}); err != nil {
			t.Fatal(err)
		}
		w.until(10*time.Second, "the second job runs", func(s *store.Snapshot) bool { return holding(s) == 4 })
	})
}

// TestConcurrencyGroupOfJobs runs at most two jobs of a group at a time, each from its first task to its last. Leaders
// are killed between the steps of jobs, and tasks fail and are tried again.
func TestConcurrencyGroupOfJobs(t *testing.T) {
	const jobs, limit, tasks = 6, 2, 4
	inWorld(t, func(t *testing.T, w *world) {
		for _, name := range []string{"n1", "n2", "n3"} {
			w.node(name, func(a *agent) {
				a.fails = func(task cluster.TaskID, attempt int) bool {
					parts, _ := task.Parts()
					return attempt == 1 && parts.Index%2 == 0
				}
			})
		}
		w.definition(1, 100)
		most, between := 0, 0
		// count returns the jobs that have begun, and those whose tasks have all succeeded.
		count := func(s *store.Snapshot) (begun, ended int) {
			attempts, succeeded, live := map[string]int{}, map[string]int{}, map[string]bool{}
			for row := range s.AllAttempts() {
				parts, _ := row.Task.Parts()
				attempts[parts.Owner]++
				if row.Outcome == nil {
					live[parts.Owner] = true
				} else if row.Outcome.State == cluster.StateSucceeded {
					succeeded[parts.Owner]++
				}
			}
			for job, n := range succeeded {
				if n == tasks {
					ended++
				} else if !live[job] {
					between++ // it holds no room
				}
			}
			return len(attempts), ended
		}
		w.meanwhile = func() {
			begun, ended := count(w.server.tables.Snapshot())
			if begun-ended > limit {
				t.Fatalf("%d jobs of the group have begun, and %d have ended", begun, ended)
			}
			most = max(most, begun-ended)
		}
		for i := range jobs {
			w.stepped(fmt.Sprint("job", i), limit, "")
		}
		w.until(time.Minute, "others wait", func(*store.Snapshot) bool {
			return w.waits(2, "job5", "concurrency group deploy of jobs: jobs 1 needed, 2 of 2 used")
		})
		for n := 1; n <= jobs; n++ {
			w.until(5*time.Minute, fmt.Sprint(n, " jobs have ended"), func(s *store.Snapshot) bool {
				_, ended := count(s)
				return ended >= n
			})
			w.server.stop()
			w.start()
		}
		if most != limit || between == 0 {
			t.Errorf("%d jobs ran at a time, want %d; a job held no room %d times", most, limit, between)
		}
	})
}

// TestCancelledJobLeavesItsGroup checks that a job whose second step finds no node gives its place to the next job as
// soon as it is cancelled, though no room comes free by that.
func TestCancelledJobLeavesItsGroup(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 100)
		job := w.stepped("first", 1, "n2")
		w.until(time.Minute, "the second step waits", func(s *store.Snapshot) bool {
			return len(slices.Collect(s.Attempts(job.Owner()))) == 2 && holding(s) == 0
		})
		second := w.stepped("second", 1, "")
		w.until(time.Minute, "the second job waits", func(*store.Snapshot) bool {
			return w.waits(2, "second", "concurrency group deploy of jobs: jobs 1 needed, 1 of 1 used")
		})
		job.Cancelled = true
		w.put(p.Job("c", "first"), job)
		w.until(5*time.Second, "the second job runs", func(s *store.Snapshot) bool {
			return len(slices.Collect(s.Attempts(second.Owner()))) > 0
		})
	})
}

// TestRetriedJobWaitsForItsGroup checks that a job whose tasks had all ended waits for a place in its group when its
// failed task is tried again.
func TestRetriedJobWaitsForItsGroup(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		n1 := w.node("n1", func(a *agent) {
			a.fails = func(task cluster.TaskID, attempt int) bool {
				return attempt <= 4 && strings.HasPrefix(string(task), "c.first.") // 3 retries
			}
		})
		w.definition(1, 100)
		first := w.stepped("first", 1, "")
		input := func(s *store.Snapshot) reconciler.JobInput {
			in := reconciler.JobInput{Owner: first.Owner(), Spec: first}
			for row := range s.Attempts(first.Owner()) {
				in.Tasks = append(in.Tasks, reconciler.Task{Attempt: row.Attempt})
			}
			return in
		}
		w.until(time.Hour, "the first job has failed", func(s *store.Snapshot) bool {
			return reconciler.StatusOfJob(input(s)).State == cluster.JobFailed
		})
		n1.endless = true
		second := w.stepped("second", 1, "")
		w.until(time.Minute, "the second job runs", func(s *store.Snapshot) bool { return holding(s) > 0 })

		in := input(w.server.tables.Snapshot())
		retried := *first
		retried.Retried = reconciler.Retry(in, reconciler.FailedTasks(in), true)
		w.put(p.Job("c", "first"), &retried)
		w.until(time.Minute, "the first job waits", func(*store.Snapshot) bool {
			return w.waits(2, "first", "concurrency group deploy of jobs: jobs 1 needed, 1 of 1 used")
		})
		second.Cancelled = true
		w.put(p.Job("c", "second"), second)
		w.until(time.Minute, "the first job runs again", func(s *store.Snapshot) bool {
			return len(slices.Collect(s.Attempts(first.Owner()))) > len(in.Tasks)
		})
	})
}

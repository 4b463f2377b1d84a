package controlplane_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// putEndlessJobOf writes a job of a cluster whose tasks run until they are stopped.
func (w *world) putEndlessJobOf(name, job string, priority, count int) cluster.OwnerRef {
	w.put(p.Job(name, job), &cluster.Job{
		Cluster: name, Name: job, Priority: cluster.Priority(priority),
		Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now(), Updated: time.Now()},
		Steps: []cluster.Step{{
			Name: "work", Definition: cluster.Ref{Name: "d", Version: 1}, Count: count,
			OnDisconnect: cluster.DisconnectWait,
		}},
	})
	return cluster.OwnerRef{Kind: cluster.KindJob, Cluster: name, Name: job}
}

// TestReclaimedQuota fills a node with tasks of the cluster c, of which half are borrowed from the cluster b. The tasks
// of b get their quota back, whatever the priorities, also under a leader that takes over while tasks leave. Nothing
// else ends, and the service of c stays. What ended waits free of charge and runs again once b leaves room.
func TestReclaimedQuota(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		n := w.node("n1", endless)
		n.lingers = func(cluster.TaskID) time.Duration { return 3 * time.Second }
		w.definition(1, 500)
		half := &cluster.Quota{CPU: 2000}
		w.put(p.Cluster("c"), &cluster.Cluster{Name: "c", Domain: cluster.DefaultDomain, Quota: &cluster.Quota{
			CPU: 2000, Borrow: &cluster.QuotaBorrow{CPU: 4000},
		}})
		w.put(p.Cluster("b"), &cluster.Cluster{Name: "b", Domain: cluster.DefaultDomain, Quota: half})
		w.service(1, 1, 1)
		w.until(10*time.Second, "the service runs", func(s *store.Snapshot) bool { return healthy(s, 1) == 1 })
		w.putEndlessJob("batch", 900, 9, 1)
		w.until(20*time.Second, "the node is full", func(s *store.Snapshot) bool {
			return countRunning(s, theJob, "n1") == 7
		})
		if !w.waits(2, "batch", "cpu 500m needed, 4 of 2 used (2 borrowed, 0 more can be)") {
			t.Errorf("they wait for other reasons: %+v", w.server.plane.Reasons(0).Groups)
		}
		least := 7
		kept := func() {
			s := w.server.tables.Snapshot()
			if least = min(least, countRunning(s, theJob, "")); least < 3 || healthy(s, 1) != 1 {
				t.Fatalf("%d tasks of the job run, and %d of the service", least, healthy(s, 1))
			}
		}
		w.meanwhile = kept
		own := w.putEndlessJobOf("b", "own", 1, 6)
		sentence := ""
		w.until(20*time.Second, "tasks leave", func(s *store.Snapshot) bool {
			if why, ok := w.server.plane.Waiting(cluster.JobTask("b", "own", 1, "work", 0)); ok {
				sentence = why.Sentence
			}
			return countRunning(s, theJob, "n1") == 3
		})
		if want := "waits for 1 task beyond the quota of its cluster to leave node n1"; !strings.HasPrefix(sentence, want) {
			t.Errorf("its status says that it waits for %q, want %q", sentence, want)
		}
		w.meanwhile = nil
		w.server.stop()
		w.start()
		w.until(time.Minute, "the new leader knows the tasks", func(s *store.Snapshot) bool {
			return healthy(s, 1) == 1 && countRunning(s, theJob, "n1") == 3
		})
		w.meanwhile = kept
		w.until(20*time.Second, "the quota is back", func(s *store.Snapshot) bool {
			return countRunning(s, own, "n1") == 4
		})
		time.Sleep(30 * time.Second) // in-bubble: inWorld makes one
		s := w.server.tables.Snapshot()
		if got := outcomes(s, theJob); got["cancelled preempted free=true"] != 4 || len(got) != 1 {
			t.Errorf("outcomes of the job: %v, want four that were preempted", got)
		}
		for row := range s.Attempts(theJob) {
			if row.Outcome == nil {
				continue
			}
			if want := "on node n1: cluster b reclaims its quota"; !strings.Contains(row.Outcome.Message, want) {
				t.Errorf("the message is %q, want %q", row.Outcome.Message, want)
			}
		}
		if n := eventCounts(s)["task.preempted"]; n != 4 {
			t.Errorf("%d such events, want 4", n)
		}
		if !w.waits(6, "batch", "(0 borrowed, 0 more can be)") || !w.waits(2, "own", "quota of cluster b") {
			t.Errorf("they wait for other reasons: %+v", w.server.plane.Reasons(0).Groups)
		}
		w.remove(p.Job("b", "own"))
		w.until(time.Minute, "it borrows again", func(s *store.Snapshot) bool {
			return countRunning(s, theJob, "n1") == 7
		})
	})
}

// TestReclaimBehindManyTasks has a task within its quota wait behind more tasks than a search covers, all of which wait
// because they cannot borrow.
func TestReclaimBehindManyTasks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1", endless)
		w.definition(1, 500)
		for name, q := range map[string]*cluster.Quota{
			"b": {CPU: 1000}, "c": {CPU: 3000, Borrow: &cluster.QuotaBorrow{CPU: 4000}}, "full": {CPU: 4000},
		} {
			w.put(p.Cluster(name), &cluster.Cluster{Name: name, Domain: cluster.DefaultDomain, Quota: q})
		}
		w.putEndlessJob("batch", 900, 1500, 1)
		w.until(20*time.Second, "the node is full", func(s *store.Snapshot) bool {
			return countRunning(s, theJob, "n1") == 8
		})
		own := w.putEndlessJobOf("b", "own", 1, 2)
		w.until(20*time.Second, "the quota is back", func(s *store.Snapshot) bool {
			return countRunning(s, own, "n1") == 2
		})
		got := fmt.Sprint(outcomes(w.server.tables.Snapshot(), theJob))
		if want := "map[cancelled preempted free=true:2]"; got != want {
			t.Errorf("outcomes of the job: %s, want %s", got, want)
		}
	})
}

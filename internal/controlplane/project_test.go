package controlplane_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/store"
)

// projections follows the store until the returned function is called, which returns the keys of the desired records
// that were written.
func (w *world) projections() func() []string {
	ctx, cancel := context.WithCancel(w.t.Context())
	watch := w.engine.Watch(ctx, string(p), 0)
	seen := make(chan []string)
	go func() {
		var keys []string
		defer func() { seen <- keys }()
		for {
			b, err := watch.Next(ctx)
			if err != nil {
				return
			}
			for _, c := range b.Changes {
				rest, ok := strings.CutPrefix(c.Key, string(p)+"state/")
				if ok && strings.Contains(rest, "/") && !c.Deleted {
					keys = append(keys, c.Key)
				}
			}
		}
	}()
	return func() []string {
		cancel()
		defer watch.Close()
		return <-seen
	}
}

// Attempts that end while their plan record is young never get a desired record of their own (P4.2).
func TestShortTasksAreNotProjected(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		seen := w.projections()
		w.node("n1")
		w.definition(1, 100)
		w.job(8, 0)
		w.until(controlplane.ProjectAfter/2, "all have succeeded and nothing is left of them",
			func(s *store.Snapshot) bool {
				return succeeded(s) == 8 && countRecords(s) == 0
			})
		if keys := seen(); len(keys) > 0 {
			t.Errorf("projected: got %v, want none", keys)
		}
	})
}

// An agent reports the end of an attempt that has no desired record, and is not told of the outcome. The plan record
// stays while it is young, since it tells that agent of the end. Then a stop takes its place.
func TestEndsOutliveTheirPlan(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		seen := w.projections()
		a := w.node("n1", func(a *agent) { a.keepsEnded = true })
		w.definition(1, 100)
		w.job(2, 0)
		w.until(5*time.Second, "both have succeeded", func(s *store.Snapshot) bool { return succeeded(s) == 2 })
		time.Sleep(controlplane.ProjectAfter / 2) // in-bubble: inWorld makes one
		if s := w.server.tables.Snapshot(); isSettled(s) {
			t.Error("the plan record is gone already")
		}
		w.until(controlplane.ProjectAfter, "the plan record is gone", isSettled)
		w.until(time.Second, "a stop took its place", func(s *store.Snapshot) bool {
			stops := 0
			for row := range s.AllAttempts() {
				if row.DesiredRev != 0 && row.Desired.Ended() {
					stops++
				}
			}
			return stops == 2
		})
		if keys := seen(); len(keys) != 2 {
			t.Errorf("desired records: got %v, want 2", keys)
		}
		a.kill()
		a.keepsEnded = false
		a.run()
		w.until(controlplane.ProjectAfter/2, "nothing is left of them", func(s *store.Snapshot) bool {
			return succeeded(s) == 2 && countRecords(s) == 0
		})
	})
}

// The node of ended attempts without desired records is gone before its agent is told of the outcomes. Their statuses
// are deleted, and then the plan record.
func TestEndsOnANodeThatIsGone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.node("n1", func(a *agent) { a.keepsEnded = true })
		w.definition(1, 100)
		w.job(2, 0)
		w.until(5*time.Second, "both have succeeded", func(s *store.Snapshot) bool { return succeeded(s) == 2 })
		a.kill()
		w.put(p.Host("n1"), &cluster.Host{Name: "n1", Gone: true})
		w.until(controlplane.ProjectAfter/3, "nothing is left of them", func(s *store.Snapshot) bool {
			return succeeded(s) == 2 && countRecords(s) == 0 && isSettled(s)
		})
	})
}

// Tasks that run for long are projected, and their plan record is deleted.
func TestLongTasksAreProjected(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		seen := w.projections()
		w.node("n1")
		w.definition(1, 100)
		w.service(3, 1, 1)
		w.until(10*time.Second, "3 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 3 })
		time.Sleep(controlplane.ProjectAfter / 2) // in-bubble: inWorld makes one
		if s := w.server.tables.Snapshot(); isSettled(s) {
			t.Error("the plan record is gone already")
		}
		w.until(controlplane.ProjectAfter, "all are projected", isSettled)
		if keys := seen(); len(keys) != 3 {
			t.Errorf("projected: got %v, want 3", keys)
		}
	})
}

// A failed task is tried again on the only node, although the young plan record of the first attempt holds other tasks
// that run. The plan record is projected immediately, as the other records of the first attempt are deleted after it
// (P3.4, P3.6).
func TestNextAttemptHurriesTheProjection(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		failing := cluster.JobTask("c", "batch", 1, "work", 0)
		w.node("n1", func(a *agent) {
			a.fails = func(id cluster.TaskID, attempt int) bool { return id == failing && attempt == 1 }
		})
		w.definition(1, 100)
		w.service(3, 1, 1)
		w.job(2, 1)
		w.until(10*time.Second, "both have succeeded", func(s *store.Snapshot) bool { return succeeded(s) == 2 })
	})
}

// The records of a deleted owner are deleted soon, although their plan record also holds running tasks of others.
func TestDeletionHurriesTheProjection(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.definition(1, 100)
		w.service(3, 1, 1)
		w.job(2, 0)
		time.Sleep(time.Second) // in-bubble: both wait, and are placed by one plan record
		w.node("n1")
		w.until(10*time.Second, "the job has run", func(s *store.Snapshot) bool {
			return succeeded(s) == 2 && healthy(s, 1) == 3
		})
		job, _ := w.server.tables.Snapshot().Job("c", "batch")
		deleted := *job.Value
		deleted.Deleted = true
		w.put(p.Job("c", "batch"), &deleted)
		w.until(controlplane.ProjectAfter/3, "the job is gone", func(s *store.Snapshot) bool {
			_, there := s.Job("c", "batch")
			return !there
		})
	})
}

package controlplane_test

import (
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/views"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// expectedStart returns the forecast of a waiting job by the server, which has made none before.
func (w *world) expectedStart(job string) *api.Expected {
	source := views.Source{
		Tables: w.server.tables, Now: time.Now,
		Leader: views.LeaderOn(views.OnlyDefault(w.server.plane)),
	}
	q := source.At(w.server.tables.Snapshot()).Queue(1000, func(string) bool { return true },
		func(cluster.OwnerRef) bool { return true })
	for _, e := range q.Entries {
		if e.Owner.Name == job {
			return e.Expected
		}
	}
	return nil
}

// The run times from which starts are forecast survive leaders that are killed. Tasks of a job ran up to their limit,
// so a task behind others of that kind is expected at the end of their limit, as it turns out to be. Without a history
// it would be expected after half of that time.
func TestNewLeadersKnowRunTimes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		limited := func(s *cluster.Step) { s.TimeLimit = cluster.Duration(10 * time.Minute) }
		w.node("n1", endless)
		w.definition(1, 1000)
		w.putEndlessJob("batch-1", 500, 4, 1, limited)
		ended := func(s *store.Snapshot, job string) (tasks int) {
			for row := range s.Attempts(cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: job}) {
				if row.Outcome != nil {
					tasks++
				}
			}
			return tasks
		}
		w.until(15*time.Minute, "the first tasks have ended", func(s *store.Snapshot) bool {
			return ended(s, "batch-1") == 4
		})
		second := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "batch-2"}
		third := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "batch-3"}
		w.putEndlessJob(second.Name, 500, 4, 1, limited)
		w.until(10*time.Second, "the next tasks run", func(s *store.Snapshot) bool {
			return countRunning(s, second, "n1") == 4
		})
		began := time.Now()
		w.putEndlessJob(third.Name, 500, 1, 1, limited)
		for range 3 {
			w.server.stop()
			w.start()
			w.until(30*time.Second, "the new leader has decided", func(*store.Snapshot) bool {
				return w.promiseOf("c.batch-3.1.work.0") != nil
			})
			got := w.expectedStart(third.Name)
			if got == nil {
				t.Fatal("no forecast")
			}
			if after := got.Median.Sub(began); after < 595*time.Second || after > 605*time.Second {
				t.Errorf("expected after %s, want the limit of ten minutes: %+v", after, got)
			}
		}
		began = time.Now() // the last leader counts the time limit again
		w.until(15*time.Minute, "the waiting task runs", func(s *store.Snapshot) bool {
			return countRunning(s, third, "n1") == 1
		})
		if after := time.Since(began); after < 9*time.Minute || after > 11*time.Minute {
			t.Errorf("it started after %s", after)
		}
	})
}

package controlplane_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// promiseOf returns the promise to a waiting task, by the server's last decision.
func (w *world) promiseOf(task cluster.TaskID) *cluster.Promise {
	for _, g := range w.server.plane.Reasons(0).Groups {
		if g.Has(task) {
			return g.Promise
		}
	}
	return nil
}

// A task that needs the whole node gets a promise, which rests on the start and the time limit of the running tasks.
// Leaders that are killed between the promise and the start make the same one, and give its room to no task that runs
// longer. A task that ends in time uses it.
func TestNewLeadersKeepPromises(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		limit := func(d time.Duration) func(*cluster.Step) {
			return func(s *cluster.Step) { s.TimeLimit = cluster.Duration(d) }
		}
		w.node("n1", endless)
		w.definition(1, 1000)
		w.definition(2, 4000)
		w.putEndlessJob("batch", 500, 2, 1, limit(10*time.Minute))
		w.until(10*time.Second, "tasks run", func(s *store.Snapshot) bool { return countRunning(s, theJob, "n1") == 2 })
		ends := time.Time{}
		for row := range w.server.tables.Snapshot().Attempts(theJob) {
			if at := row.Observed.Started.Add(10 * time.Minute); at.After(ends) {
				ends = at
			}
		}
		big := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "big"}
		long := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "long"}
		short := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "short"}
		w.putEndlessJob(big.Name, 500, 1, 2)
		w.until(10*time.Second, "the large task has a promise", func(*store.Snapshot) bool {
			return w.promiseOf("c.big.1.work.0") != nil
		})
		w.putEndlessJob(long.Name, 500, 1, 1, limit(11*time.Minute))
		w.putEndlessJob(short.Name, 500, 1, 1, limit(5*time.Minute))
		for range 3 {
			w.server.stop()
			w.start()
			w.until(30*time.Second, "the new leader has decided", func(s *store.Snapshot) bool {
				return w.promiseOf("c.big.1.work.0") != nil && countRunning(s, short, "n1") == 1
			})
			got := w.promiseOf("c.big.1.work.0")
			if diff := cmp.Diff(&cluster.Promise{Node: "n1", At: ends.UTC(), After: got.After}, got); diff != "" {
				t.Fatalf("promise (-want +got):\n%s", diff)
			}
		}
		w.until(15*time.Minute, "the large task runs", func(s *store.Snapshot) bool {
			if countRunning(s, long, "") > 0 {
				t.Fatal("a task that runs longer got the room")
			}
			return countRunning(s, big, "n1") == 1
		})
	})
}

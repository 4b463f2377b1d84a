package controlplane_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

var (
	firstJob = cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "first"}
	smallJob = cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "small"}
)

// While a plan with some tasks of a job is in flight, victims of its other tasks end. Their room is kept for these
// tasks: no task behind them gets it, so that no further task has to end.
func TestPreemptedRoomIsKeptWhileAPlanIsWritten(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var takes atomic.Int64
		w.slowPlans(&takes)
		n := w.node("n1", endless)
		n.lingers = func(cluster.TaskID) time.Duration { return 2 * time.Second }
		w.definition(1, 1000)
		w.putEndlessJob("batch", 300, 4, 1)
		w.until(10*time.Second, "the node is full", func(s *store.Snapshot) bool {
			return countRunning(s, theJob, "n1") == 4
		})
		takes.Store(int64(5 * time.Second))
		w.putEndlessJob("small", 350, 3, 1)
		w.putEndlessJob("urgent", 900, 3, 1)
		w.until(2*time.Minute, "the urgent tasks run", func(s *store.Snapshot) bool {
			return countRunning(s, urgent, "n1") == 3
		})
		s := w.server.tables.Snapshot()
		if got := outcomes(s, theJob)["cancelled preempted free=true"]; got != 3 {
			t.Errorf("%d tasks ended for three", got)
		}
		for row := range s.Attempts(smallJob) {
			t.Errorf("%s of lower priority was placed", row.Task)
		}
	})
}

// While a plan with some tasks of a job is in flight, its other tasks stay in the queue: room that comes free meanwhile
// does not go to tasks behind them.
func TestQueueIsKeptWhileAPlanIsWritten(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var takes atomic.Int64
		w.slowPlans(&takes)
		w.node("n1") // runs one task after the other
		w.node("n2", endless)
		w.definition(1, 1000)
		w.putEndlessJob("batch", 300, 8, 1)
		w.until(10*time.Second, "all tasks are placed", func(s *store.Snapshot) bool { return countRecords(s) == 8 })
		takes.Store(int64(5 * time.Second))
		w.putEndlessJob("first", 350, 4, 1)
		w.putEndlessJob("small", 320, 4, 1)
		w.until(time.Minute, "the first job has its room", func(s *store.Snapshot) bool {
			for row := range s.Attempts(smallJob) {
				t.Fatalf("%s was placed before the tasks of the first job", row.Task)
			}
			placed := 0
			for range s.Attempts(firstJob) {
				placed++
			}
			return placed == 4
		})
		takes.Store(0)
	})
}

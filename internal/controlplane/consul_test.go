package controlplane_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// onConsul is inWorld on an engine with Consul's limits. The test starts the server.
func onConsul(t *testing.T, do func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, engine: memory.New(memory.Options{Consul: true}), began: time.Now()}
		do(t, w)
		for _, a := range w.agents {
			a.kill()
		}
		w.server.stop()
	})
}

// The last tasks of a job end together. Their outcomes are written within 128 operations a call, and the job's end is
// published once, with or after the last outcome. That holds if an outcome is refused at first, too.
func TestEndOfAJobOnConsul(t *testing.T) {
	for _, refused := range []int{-1, 0, 39} {
		t.Run(fmt.Sprint("refused ", refused), func(t *testing.T) {
			onConsul(t, func(t *testing.T, w *world) { testEndOfAJob(t, w, refused) })
		})
	}
}

// testEndOfAJob lets 40 tasks end together. The first outcome of the refused one, if any, is refused.
func testEndOfAJob(t *testing.T, w *world, refused int) {
	const n = 40
	w.definition(1, 10)
	w.job(n, 0)
	owner := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "batch"}
	taskOf := func(i int) cluster.TaskID { return cluster.JobTask("c", "batch", 1, "work", i) }
	for i := range n {
		task, id := taskOf(i), uuid.NewString()
		w.put(p.Desired("n1", task), &cluster.Desired{
			Task: task, Attempt: 1, UUID: id, Node: "n1", Owner: owner,
			Definition: cluster.Ref{Name: "d", Version: 1},
		})
		w.put(p.Observed("n1", task),
			&cluster.Observed{Task: task, Attempt: 1, UUID: id, Node: "n1", State: cluster.StateSucceeded})
	}
	var isRefused atomic.Bool
	w.faulty = w.engine.Open(memory.Hooks{Before: func(ctx context.Context, groups []store.Group) error {
		for _, g := range groups {
			outcomes, end := 0, false
			for _, op := range g.Ops {
				if strings.Contains(op.Key, "/attempt/") {
					outcomes++
				}
				end = end || strings.Contains(string(op.Value), "job.succeeded")
			}
			if end {
				earlier := succeeded(w.current.Load().tables.Snapshot())
				if earlier+outcomes < n {
					t.Errorf("the end of the job is published with %d of %d outcomes", earlier+outcomes, n)
				}
			}
			for _, op := range g.Ops {
				if refused < 0 || op.Key != p.Outcome(taskOf(refused), 1) || isRefused.Swap(true) {
					continue
				}
				// Another revision of the same report.
				key := p.Observed("n1", taskOf(refused))
				was, err := w.engine.Read(ctx, key)
				if err != nil {
					return err
				}
				value := append(slices.Clone(was.Value), ' ') // Consul skips equal values
				_, err = w.engine.Commit(ctx, []store.Group{{Ops: []store.Op{{Key: key, Value: value}}}})
				return err
			}
		}
		return nil
	}})
	w.start()
	w.until(time.Minute, "all concluded", func(s *store.Snapshot) bool { return succeeded(s) == n })
	if ends := eventCounts(w.server.tables.Snapshot())["job.succeeded"]; ends != 1 {
		t.Errorf("events of the job's end: got %d, want 1", ends)
	}
	if isRefused.Load() != (refused >= 0) {
		t.Errorf("an outcome was refused: %v", isRefused.Load())
	}
}

// Many second attempts are placed by several plan records, as each compares the first attempt.
func TestManyRetriesOnConsul(t *testing.T) {
	onConsul(t, func(t *testing.T, w *world) {
		const n = 150
		w.definition(1, 10)
		w.job(n, 1)
		owner := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "batch"}
		for i := range n {
			task := cluster.JobTask("c", "batch", 1, "work", i)
			w.put(p.Outcome(task, 1), &cluster.Outcome{
				Task: task, Attempt: 1, UUID: uuid.NewString(), Node: "n9", Owner: owner, State: cluster.StateFailed,
				Definition: cluster.Ref{Name: "d", Version: 1}, Started: true, Ended: time.Now(),
			})
		}
		w.start()
		w.node("n1")
		w.until(3*time.Minute, "all placed again", func(s *store.Snapshot) bool {
			for i := range n {
				if row, ok := s.Attempt(cluster.JobTask("c", "batch", 1, "work", i), 2); !ok || row.Desired == nil &&
					row.Outcome == nil {
					return false
				}
			}
			return true
		})
	})
}

// The event log keeps what a publisher has not sent. Once the publisher is removed, the log is trimmed within 128
// operations a call, and each deleted batch is counted.
func TestEventsAreTrimmedOnConsul(t *testing.T) {
	onConsul(t, func(t *testing.T, w *world) {
		const written = 21_000
		for i := 0; i < written; {
			var g store.Group
			for len(g.Ops) < 100 {
				id := fmt.Sprintf("e%06d", i)
				value, err := store.Encode(&cluster.EventBatch{ID: id})
				if err != nil {
					t.Fatal(err)
				}
				g.Ops = append(g.Ops, store.Op{Key: p.Event(id), Value: value})
				i++
			}
			if _, err := w.engine.Commit(t.Context(), []store.Group{g}); err != nil {
				t.Fatal(err)
			}
		}
		w.put(p.Publisher("broker"), &cluster.Publisher{Name: "broker"})
		w.start()
		w.until(time.Minute, "a leader", func(s *store.Snapshot) bool {
			leader, ok := s.Leader(cluster.DefaultDomain)
			return ok && leader.Value.Holder != ""
		})
		time.Sleep(5 * time.Second) // in-bubble: onConsul makes one
		if n := w.server.tables.Snapshot().EventCount(); n < written {
			t.Errorf("the log has %d batches while a publisher has sent none, want %d", n, written)
		}
		w.remove(p.Publisher("broker"))
		w.put(p.Event("last"), &cluster.EventBatch{ID: "last"})
		w.until(time.Minute, "trimmed", func(s *store.Snapshot) bool {
			n, trim := s.EventCount(), uint64(0)
			if e, ok := s.EventTrim(); ok {
				trim = e.Value.Batches
			}
			return n > 19_000 && n <= 20_500 && trim+uint64(n) > written
		})
	})
}

// A fault of one owner's records, here two writes of one key, keeps no other owner from being served.
func TestForeignRecordOfATaskThatIsToStop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 500)
		w.service(2, 1, 1)
		w.until(time.Minute, "2 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 && isSettled(s) })
		w.server.stop()
		task := cluster.ServiceTask("c", "web", 1, 1)
		w.raw(p.Desired("n1", task), []byte("not a record"))
		w.service(0, 1, 1)
		w.start()
		w.job(3, 0)
		w.until(time.Minute, "the job has run and the service is gone", func(s *store.Snapshot) bool {
			return succeeded(s) == 3 && countRecords(s) == 0
		})
	})
}

// The same while the tables know the former record: it is written back and stopped in one cycle.
func TestForeignRecordAndStopInOneCycle(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 500)
		w.service(2, 1, 1)
		w.until(time.Minute, "2 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 && isSettled(s) })
		spec, err := store.Encode(&cluster.Service{
			Cluster: "c", Name: "web", Count: 1, Definition: cluster.Ref{Name: "d", Version: 1}, Priority: 500,
			Lifespan: cluster.Lifespan{Generation: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.engine.Commit(t.Context(), []store.Group{{Ops: []store.Op{
			{Key: p.Service("c", "web"), Value: spec},
			{Key: p.Desired("n1", cluster.ServiceTask("c", "web", 1, 0)), Value: []byte("?")},
			{Key: p.Desired("n1", cluster.ServiceTask("c", "web", 1, 1)), Value: []byte("?")},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		w.job(3, 0)
		w.until(time.Minute, "one task is left and the job has run", func(s *store.Snapshot) bool {
			return healthy(s, 1) == 1 && countRecords(s) == 1 && succeeded(s) == 3
		})
	})
}

// A foreign record under a status key of a task that its node does not run is removed.
func TestForeignStatusIsRemoved(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.raw(p.Observed("n1", cluster.ServiceTask("c", "web", 1, 0)), []byte("?"))
		w.definition(1, 500)
		w.service(1, 1, 1)
		w.until(time.Minute, "it is removed and the task runs", func(s *store.Snapshot) bool {
			return healthy(s, 1) == 1 && countRecords(s) == 1
		})
	})
}

// isSettled reports whether every desired record is projected and its plan gone.
func isSettled(s *store.Snapshot) bool {
	for row := range s.AllAttempts() {
		if row.PlanRev != 0 {
			return false
		}
	}
	return true
}

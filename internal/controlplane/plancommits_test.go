package controlplane_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// hasPlacements reports whether a commit writes a plan record with placements.
func hasPlacements(groups []store.Group) bool {
	for i := range groups {
		for _, op := range groups[i].Ops {
			if strings.HasPrefix(op.Key, string(p)+"plan/") && strings.Contains(string(op.Value), `"owners"`) {
				return true
			}
		}
	}
	return false
}

// slowPlans restarts the server over an engine that delays each plan record by takes. The function in before runs
// before each write.
func (w *world) slowPlans(takes *atomic.Int64) (before *atomic.Pointer[func()]) {
	before = new(atomic.Pointer[func()])
	w.server.stop()
	w.faulty = w.engine.Open(memory.Hooks{Before: func(ctx context.Context, groups []store.Group) error {
		if hasPlacements(groups) {
			sleep(ctx, time.Duration(takes.Load()))
			if do := before.Load(); do != nil {
				(*do)()
			}
		}
		return nil
	}})
	w.start()
	return before
}

// While a plan is in flight the leader continues: it writes outcomes, and charges new placements beside those in
// flight.
func TestDecidesWhilePlansAreWritten(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var takes atomic.Int64
		w.slowPlans(&takes)
		w.node("n1") // 4,000 of CPU
		w.definition(1, 1000)
		w.job(1, 0)
		w.until(10*time.Second, "the job's task runs", func(s *store.Snapshot) bool {
			for row := range s.AllAttempts() {
				if row.Observed != nil {
					return true
				}
			}
			return false
		})
		takes.Store(int64(5 * time.Second))
		w.service(3, 1, 1) // its plan record is in flight, and takes the rest of the node
		began := time.Now()
		w.until(3*time.Second, "the job's outcome is written", func(s *store.Snapshot) bool {
			return succeeded(s) == 1
		})
		w.put(p.Service("c", "other"), &cluster.Service{
			Cluster: "c", Name: "other", Count: 2, Definition: cluster.Ref{Name: "d", Version: 1}, Priority: 500,
			Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now()},
		})
		w.until(30*time.Second, "the service runs", func(s *store.Snapshot) bool { return healthy(s, 1) == 3 })
		if took := time.Since(began); took < 5*time.Second {
			t.Errorf("the plan record took %v, want 5s at least: the test shows nothing", took)
		}
		takes.Store(0)
		time.Sleep(10 * time.Second) // in-bubble: inWorld makes one
		used := cluster.MilliCPU(0)
		for row := range w.server.tables.Snapshot().AllAttempts() {
			if row.Standing() && row.Outcome == nil {
				used += 1000
			}
		}
		if used != 4000 {
			t.Errorf("%d of CPU are given away on the node, want all of its 4000 and no more", used)
		}
	})
}

// Tasks that found no place keep their reason while other tasks of their service are in flight, also if the leader
// decides about tasks of others meanwhile.
func TestReasonsRemainWhilePlansAreWritten(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var takes atomic.Int64
		w.slowPlans(&takes)
		w.node("n1") // 4,000 of CPU
		w.definition(1, 1000)
		w.until(10*time.Second, "n1 is ready", func(s *store.Snapshot) bool {
			return node(s, "n1").State == cluster.NodeReady
		})
		takes.Store(int64(5 * time.Second))
		w.service(6, 1, 1) // four tasks are in flight, and two wait
		hasReason := func(i int) bool {
			why, ok := w.server.plane.Waiting(cluster.ServiceTask("c", "web", 1, i))
			return ok && why.Sentence != ""
		}
		w.until(3*time.Second, "two tasks wait", func(*store.Snapshot) bool { return hasReason(4) && hasReason(5) })
		w.put(p.Service("c", "other"), &cluster.Service{
			Cluster: "c", Name: "other", Count: 2, Definition: cluster.Ref{Name: "d", Version: 1}, Priority: 500,
			Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now()},
		})
		other := cluster.ServiceTask("c", "other", 1, 0)
		w.until(3*time.Second, "the other service waits", func(*store.Snapshot) bool {
			_, ok := w.server.plane.Waiting(other)
			return ok
		})
		if healthy(w.server.tables.Snapshot(), 1) > 0 {
			t.Error("the first tasks run already: the test shows nothing")
		}
		for i := range 6 {
			if got, want := hasReason(i), i >= 4; got != want {
				t.Errorf("task %d has a reason to wait: %t, want %t", i, got, want)
			}
		}
	})
}

// A spec that changes while its placements are in flight refuses them. Their reservations are released, and the new
// version is placed.
func TestRefusedPlacementsAreReleased(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var takes atomic.Int64
		before := w.slowPlans(&takes)
		w.node("n1")
		w.definition(1, 2000)
		w.definition(2, 1000)
		w.until(10*time.Second, "n1 is ready", func(s *store.Snapshot) bool {
			return node(s, "n1").State == cluster.NodeReady
		})
		change := func() { // just before the record arrives
			before.Store(nil)
			w.service(4, 2, 2)
		}
		before.Store(&change)
		takes.Store(int64(time.Second))
		w.service(2, 1, 1)
		w.until(time.Minute, "all 4 of the new version run", func(s *store.Snapshot) bool { return healthy(s, 2) == 4 })
	})
}

// withTaskInFlight returns while a task for the node n1 is in flight. The commit takes the given time and began a
// second ago.
func (w *world) withTaskInFlight(takes time.Duration) {
	var slow atomic.Int64
	w.slowPlans(&slow)
	w.node("n1")
	w.definition(1, 1000)
	w.until(10*time.Second, "n1 is ready", func(s *store.Snapshot) bool {
		return node(s, "n1").State == cluster.NodeReady
	})
	slow.Store(int64(takes))
	w.service(1, 1, 1)
	time.Sleep(time.Second) // in-bubble: inWorld makes one
}

// A node gets an evicting taint while a task for it is in flight. The task leaves it as soon as it has arrived.
func TestTaintAppliesToTaskInFlight(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.withTaskInFlight(3 * time.Second)
		w.putTaints("n1", evictTaint())
		w.node("n2")
		w.until(15*time.Second, "it runs on n2", func(s *store.Snapshot) bool {
			return healthy(s, 1) == 1 && countOn(s, "n2") == 1 && countOn(s, "n1") == 0
		})
	})
}

// P7.1: a node with a task in flight is not released.
func TestNodeIsKeptForTaskInFlight(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.withTaskInFlight(5 * time.Second)
		defer w.leadDomain("other", 0)()
		w.put(p.Host("n1"), &cluster.Host{Name: "n1", Domain: "other"})
		for range 100 {
			time.Sleep(200 * time.Millisecond) // in-bubble: inWorld makes one
			s := w.server.tables.Snapshot()
			if n := node(s, "n1"); n.Domain != cluster.DefaultDomain && countOn(s, "n1") > 0 {
				t.Fatalf("n1 is %q's while a task of ours is placed on it", n.Domain)
			}
		}
	})
}

package controlplane_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/store"
)

// leadDomain starts the plane of another domain over the same store and tables.
func (w *world) leadDomain(domain string, without clause.Set) (stop func()) {
	s := w.server
	w.put(p.Domain(domain), &cluster.Domain{Name: domain, Number: 1})
	plane := controlplane.New(controlplane.Config{
		Engine: w.engine, Tables: s.tables, Domain: domain, Server: "s2", Random: rand.New(rand.NewPCG(2, 2)),
		Logger: slog.New(slog.DiscardHandler), Now: time.Now, Clock: func() time.Duration {
			return time.Since(w.began)
		},
		Without: without,
	})
	ctx, cancel := context.WithCancel(s.ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = plane.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// P7.1, T15: the operator gives a node to another domain. Its owner drains and releases it, and only then the other
// domain claims it, with a higher generation. Without the clause it is claimed immediately.
func TestNodeGoesToAnotherDomain(t *testing.T) {
	for _, without := range []clause.Set{0, clause.Ownership} {
		inWorld(t, func(t *testing.T, w *world) {
			w.node("n1")
			w.definition(1, 500)
			w.service(2, 1, 1)
			w.until(10*time.Second, "2 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 })
			stop := w.leadDomain("other", without)
			w.put(p.Host("n1"), &cluster.Host{Name: "n1", Domain: "other"})
			time.Sleep(20 * time.Second) // in-bubble: inWorld makes one
			got := node(w.server.tables.Snapshot(), "n1")
			if taken := got.Domain == "other"; taken != (without != 0) {
				t.Errorf("without %b: with tasks on it and nowhere to go the node is %s of %s", without, got.State,
					got.Domain)
			}
			if without == 0 {
				w.node("n2")
				w.until(30*time.Second, "n1 is the other domain's", func(s *store.Snapshot) bool {
					n := node(s, "n1")
					return n.Domain == "other" && n.Generation == 2 && n.State == cluster.NodeReady &&
						countOn(s, "n1") == 0 && healthy(s, 1) == 2
				})
			}
			stop()
		})
	}
}

// With force a domain takes a node that another one owns: the operator raises its generation.
func TestNodeIsTakenByForce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.until(10*time.Second, "n1 is ready", func(s *store.Snapshot) bool {
			return node(s, "n1").State == cluster.NodeReady
		})
		defer w.leadDomain("other", 0)()
		w.put(p.Host("n1"), &cluster.Host{Name: "n1", Domain: "other", Generation: 7})
		w.until(10*time.Second, "n1 is the other domain's", func(s *store.Snapshot) bool {
			n := node(s, "n1")
			return n.Domain == "other" && n.Generation == 7
		})
	})
}

// P3.5: a record was written over before its node reported the task. It is removed once the node has reported without
// the task. The lost attempt gets its outcome, so that its number is not used again.
func TestNumberOfALostRecordIsNotUsedAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.node("n1")
		w.until(10*time.Second, "n1 is ready", func(s *store.Snapshot) bool {
			return node(s, "n1").State == cluster.NodeReady
		})
		a.kill()
		w.definition(1, 500)
		w.service(1, 1, 1)
		task := cluster.ServiceTask("c", "web", 1, 0)
		w.until(time.Minute, "placed and projected", func(s *store.Snapshot) bool {
			row, ok := s.Attempt(task, 1)
			return ok && row.DesiredRev != 0 && row.PlanRev == 0
		})
		w.server.stop()
		w.raw(p.Desired("n1", task), []byte("not a record"))
		w.start()
		w.until(10*time.Second, "it is pinned", func(s *store.Snapshot) bool {
			row, ok := s.Attempt(task, 0)
			return ok && row.IsUnreadable()
		})
		a.run()
		w.until(30*time.Second, "it runs as its second attempt", func(s *store.Snapshot) bool {
			first, ok := s.Attempt(task, 1)
			second, placed := s.Attempt(task, 2)
			return ok && placed && first.Outcome != nil && first.Outcome.State == cluster.StateLost &&
				first.Outcome.Free &&
				first.Outcome.Reason == cluster.ReasonForeignWrite && second.Observed.Healthy()
		})
	})
}

// P3.9: a desired record that a foreign writer deletes is made again from the agent's report, and nothing is stopped.
func TestDeletedRecordIsMadeAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.node("n1")
		w.definition(1, 500)
		w.service(1, 1, 1)
		task := cluster.ServiceTask("c", "web", 1, 0)
		w.until(time.Minute, "healthy", func(s *store.Snapshot) bool {
			row, ok := s.Attempt(task, 1)
			return healthy(s, 1) == 1 && ok && row.DesiredRev != 0 && row.PlanRev == 0
		})
		before, _ := w.server.tables.Snapshot().Attempt(task, 1)
		w.definition(2, 700)
		w.remove(p.Desired("n1", task))
		w.until(10*time.Second, "the record is back", func(s *store.Snapshot) bool {
			row, ok := s.Attempt(task, 1)
			return ok && row.DesiredRev > before.DesiredRev && row.Desired.UUID == before.Desired.UUID &&
				row.Desired.Definition == before.Desired.Definition && row.Desired.Stop == nil &&
				row.Desired.Plan == before.Desired.Plan
		})
		if len(a.effects) != 1 || eventCounts(w.server.tables.Snapshot())["task.adopted"] != 1 {
			t.Errorf("%d starts and %d adoptions, want one of each", len(a.effects),
				eventCounts(w.server.tables.Snapshot())["task.adopted"])
		}
	})
}

// TestTwoDomainsPlace lets two domains place tasks at the same time in one store: each on its own nodes, with plan
// records under its own numbers, and each tidies its own.
func TestTwoDomainsPlace(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.put(p.Host("n2"), &cluster.Host{Name: "n2", Domain: "other"})
		stop := w.leadDomain("other", 0)
		w.node("n1")
		w.node("n2")
		w.put(p.Cluster("d"), &cluster.Cluster{Name: "d", Domain: "other"})
		w.definition(1, 100)
		w.service(3, 1, 1)
		w.put(p.Service("d", "web"), &cluster.Service{
			Cluster: "d", Name: "web", Count: 2, Definition: cluster.Ref{Name: "d", Version: 1}, Priority: 500,
			Lifespan: cluster.Lifespan{Generation: 1},
		})
		w.until(30*time.Second, "both services run on the nodes of their domains", func(s *store.Snapshot) bool {
			running := map[string]int{}
			for row := range s.AllAttempts() {
				if row.Observed != nil && row.Observed.Healthy() {
					running[string(row.Task[:1])+" on "+row.Node]++
				}
			}
			return running["c on n1"] == 3 && running["d on n2"] == 2 && len(running) == 2
		})
		numbers := func(domain uint64) (all []uint64) {
			for e := range w.server.tables.Snapshot().Plans(domain) {
				all = append(all, e.Value.Seq)
			}
			return all
		}
		if a, b := numbers(0), numbers(1); len(a) == 0 || len(b) == 0 {
			t.Errorf("plans %v and %v: both domains should have some", a, b)
		}
		// The plan records of both go once their attempts have records of their own. The newest one stays, empty.
		w.until(2*time.Minute, "the plans of both domains are projected", func(s *store.Snapshot) bool {
			left := 0
			for _, domain := range []uint64{0, 1} {
				for e := range s.Plans(domain) {
					left += len(e.Value.Owners)
				}
			}
			return left == 0
		})
		stop()
	})
}

// TestDeletedDomainHasNoLeader checks that a plane of a domain without a record leads nothing and writes no plan.
func TestDeletedDomainHasNoLeader(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.put(p.Host("n1"), &cluster.Host{Name: "n1", Domain: "other"})
		stop := w.leadDomain("other", 0)
		w.node("n1")
		w.until(10*time.Second, "n1 is the other domain's", func(s *store.Snapshot) bool {
			return node(s, "n1").Domain == "other"
		})
		w.remove(p.Domain("other"))
		w.remove(p.Leader("other"))
		w.put(p.Cluster("d"), &cluster.Cluster{Name: "d", Domain: "other"})
		w.definition(1, 100)
		w.put(p.Service("d", "web"), &cluster.Service{
			Cluster: "d", Name: "web", Count: 2, Definition: cluster.Ref{Name: "d", Version: 1}, Priority: 500,
			Lifespan: cluster.Lifespan{Generation: 1},
		})
		time.Sleep(20 * time.Second) // in-bubble: inWorld makes one
		for row := range w.server.tables.Snapshot().AllAttempts() {
			t.Errorf("%s was placed on %s by a domain without a record", row.Task, row.Node)
		}
		stop()
	})
}

package controlplane_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// counts keeps what a plane counts, as metrics do.
type counts struct{ placed, waiting, unplaced, refused, lost atomic.Int64 }

func (c *counts) Cycled(_ time.Duration, placed, waiting int) {
	c.placed.Add(int64(placed))
	c.waiting.Store(int64(waiting))
}

func (c *counts) Ended() { c.waiting.Store(0) }

func (c *counts) Unplaced(tasks int) { c.unplaced.Add(int64(tasks)) }

func (c *counts) PlacementsRefused(placements int) { c.refused.Add(int64(placements)) }

func (c *counts) NodesLost(nodes int) { c.lost.Add(int64(nodes)) }

// count has the plane count into the result from now on.
func (w *world) count() *counts {
	c := &counts{}
	w.metrics = c
	return c
}

// A task that fits on no node is a failed placement, one that fits is none.
func TestTasksWithoutANodeAreCounted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.server.stop()
		c := w.count()
		w.start()
		w.node("n1") // 4,000 of CPU
		w.definition(1, 1000)
		w.until(10*time.Second, "n1 is ready", func(s *store.Snapshot) bool {
			return node(s, "n1").State == cluster.NodeReady
		})
		w.service(4, 1, 1)
		w.until(10*time.Second, "4 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 4 })
		if n := c.unplaced.Load(); n != 0 {
			t.Errorf("%d failed placements of tasks that all fit", n)
		}
		w.service(7, 1, 1)
		w.until(10*time.Second, "3 wait", func(*store.Snapshot) bool { return c.waiting.Load() == 3 })
		if n := c.unplaced.Load(); n < 3 {
			t.Errorf("%d failed placements, want one of each of the 3 tasks at least", n)
		}
		if n := c.refused.Load(); n != 0 {
			t.Errorf("%d placements are said to be refused by the store", n)
		}
	})
}

// A placement that the store refuses, since the service changed meanwhile, counts as failed and not as placed.
func TestRefusedPlacementsAreCounted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var takes atomic.Int64
		c := w.count()
		before := w.slowPlans(&takes)
		w.node("n1")
		w.definition(1, 1000)
		w.definition(2, 1000)
		w.until(10*time.Second, "n1 is ready", func(s *store.Snapshot) bool {
			return node(s, "n1").State == cluster.NodeReady
		})
		change := func() { // just before the record arrives
			before.Store(nil)
			w.service(2, 2, 2)
		}
		before.Store(&change)
		w.service(2, 1, 1)
		w.until(time.Minute, "both of the new version run", func(s *store.Snapshot) bool { return healthy(s, 2) == 2 })
		if refused, placed := c.refused.Load(), c.placed.Load(); refused != 2 || placed != 2 {
			t.Errorf("%d refused and %d placed, want 2 of each", refused, placed)
		}
	})
}

// A node counts as lost each time that it becomes down, however long it stays so, and whatever is known of it then.
func TestLostNodesAreCounted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.server.stop()
		c := w.count()
		w.start()
		a := w.node("n1")
		w.node("n2")
		is := func(state cluster.NodeState) func(*store.Snapshot) bool {
			return func(s *store.Snapshot) bool { return node(s, "n1").State == state }
		}
		for round := range int64(2) {
			w.until(time.Minute, "n1 is ready", is(cluster.NodeReady))
			if n := c.lost.Load(); n != round {
				t.Fatalf("%d lost nodes before round %d", n, round)
			}
			a.kill()
			w.until(5*time.Minute, "n1 is down", is(cluster.NodeDown))
			time.Sleep(10 * time.Minute) // in-bubble: inWorld makes one
			if n := c.lost.Load(); n != round+1 {
				t.Fatalf("%d lost nodes after %d losses", n, round+1)
			}
			a.run()
		}
		w.definition(1, 3000)
		w.service(2, 1, 1)
		w.until(time.Minute, "a task on each node", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 })
		a.kill()
		w.until(5*time.Minute, "n1 is down", is(cluster.NodeDown))
		w.put(p.Host("n1"), &cluster.Host{Name: "n1", Gone: true})
		w.until(time.Minute, "n1 is forgotten", func(s *store.Snapshot) bool {
			_, has := s.Node("n1")
			return !has
		})
		if n := c.lost.Load(); n != 3 {
			t.Errorf("%d lost nodes after 3 losses and a node that never returns", n)
		}
	})
}

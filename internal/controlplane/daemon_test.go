package controlplane_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

func (w *world) putDaemon(constraints ...cluster.Constraint) {
	w.put(p.Service("c", "web"), &cluster.Service{
		Cluster: "c", Name: "web", Mode: cluster.ModeDaemon, Definition: cluster.Ref{Name: "d", Version: 1},
		Priority:     500,
		OnDisconnect: cluster.DisconnectKeep, Placement: cluster.Placement{Constraints: constraints},
		Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now(), Updated: time.Now()},
	})
}

// daemonPlaces returns, in order, the nodes with healthy tasks of the service that are to stay.
func daemonPlaces(s *store.Snapshot) []string {
	out := []string{}
	for row := range s.Attempts(cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"}) {
		if row.Outcome == nil && row.Desired != nil && row.Desired.Stop == nil && row.Observed.Healthy() {
			out = append(out, row.Node)
		}
	}
	slices.Sort(out)
	return out
}

func daemonsAt(want ...string) func(*store.Snapshot) bool {
	return func(s *store.Snapshot) bool { return cmp.Diff(want, daemonPlaces(s)) == "" }
}

// A daemon has a task on each node where it belongs, while nodes come, change their labels and are known to be gone.
func TestDaemonFollowsTheNodes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 100)
		w.putDaemon(cluster.Constraint{Attribute: "label.edge", Op: cluster.OpNotEqual, Value: "no"})
		w.until(30*time.Second, "on n1", daemonsAt("n1"))
		w.node("n2")
		w.node("n3")
		w.until(30*time.Second, "on all three", daemonsAt("n1", "n2", "n3"))
		w.put(p.Host("n2"), &cluster.Host{Name: "n2", Labels: cluster.Labels{"edge": "no"}})
		w.until(30*time.Second, "not on n2", daemonsAt("n1", "n3"))
		w.put(p.Host("n2"), &cluster.Host{Name: "n2", Labels: cluster.Labels{"edge": "yes"}})
		w.until(30*time.Second, "on n2 again", daemonsAt("n1", "n2", "n3"))
		w.put(p.Host("n3"), &cluster.Host{Name: "n3", Cordon: true})
		time.Sleep(10 * time.Second) // in-bubble: inWorld makes one
		if got := daemonPlaces(w.server.tables.Snapshot()); len(got) != 3 {
			t.Errorf("after n3 was cordoned: on %v, want all three", got)
		}
		w.agents[2].kill()
		w.put(p.Host("n3"), &cluster.Host{Name: "n3", Gone: true})
		w.until(time.Minute, "n3 is forgotten", func(s *store.Snapshot) bool {
			_, known := s.Node("n3")
			return !known && daemonsAt("n1", "n2")(s)
		})
	})
}

// A drained node keeps its daemon's task until no other task is there; then that task ends too. It comes back when the
// node takes tasks again.
func TestDaemonLeavesADrainedNodeLast(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 100)
		w.putDaemon()
		w.until(30*time.Second, "on n1", daemonsAt("n1"))
		w.put(p.Service("c", "app"), &cluster.Service{
			Cluster: "c", Name: "app", Count: 1, Definition: cluster.Ref{Name: "d", Version: 1}, Priority: 500,
			OnDisconnect: cluster.DisconnectKeep, Lifespan: cluster.Lifespan{Generation: 1},
		})
		app := func(node string) func(*store.Snapshot) bool {
			return func(s *store.Snapshot) bool {
				for row := range s.Attempts(cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "app"}) {
					if row.Node == node && row.Standing() && row.Observed.Healthy() {
						return true
					}
				}
				return false
			}
		}
		w.until(30*time.Second, "the app on n1", app("n1"))
		w.put(p.Host("n1"), &cluster.Host{Name: "n1", Drain: &cluster.Drain{Since: time.Now()}})
		time.Sleep(20 * time.Second) // in-bubble: inWorld makes one
		if s := w.server.tables.Snapshot(); !daemonsAt("n1")(s) || !app("n1")(s) {
			t.Errorf("while the app has nowhere to go: the daemon on %v", daemonPlaces(s))
		}
		w.node("n2")
		w.until(time.Minute, "n1 is drained", func(s *store.Snapshot) bool {
			return app("n2")(s) && daemonsAt("n2")(s) && node(s, "n1").State == cluster.NodeDrained &&
				countOn(s, "n1") == 0
		})
		w.put(p.Host("n1"), &cluster.Host{Name: "n1"})
		w.until(time.Minute, "the daemon is back", daemonsAt("n1", "n2"))
	})
}

// One task at a time leaves a node that is short of memory, as its agent suggests. The beginning is published once.
func TestPressureMovesOneTaskAtATime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var short atomic.Bool
		w.node("n1", func(a *agent) {
			a.stats = func() *cluster.NodeStats { // each report suggests another running attempt
				stats := &cluster.NodeStats{At: time.Now()}
				for id, o := range a.tasks { // order-free: any task
					if short.Load() && o.State == cluster.StateRunning {
						stats.Pressure = &cluster.Pressure{
							Since: time.Now(), Message: "memory: 96% is used",
							Victim: id, Task: o.Task,
						}
					}
				}
				return stats
			}
		})
		w.definition(1, 100)
		w.service(4, 1, 1)
		w.until(time.Minute, "4 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 4 && isSettled(s) })
		w.node("n2", func(a *agent) { a.takes = 20 * time.Second })
		w.until(30*time.Second, "n2 is ready", func(s *store.Snapshot) bool {
			return node(s, "n2").State == cluster.NodeReady
		})
		short.Store(true)
		moving := 0
		w.until(2*time.Minute, "two have moved", func(s *store.Snapshot) bool {
			now := 0
			for row := range s.NodeAttempts("n1") {
				if row.Outcome != nil && row.Standing() && !row.Observed.Gone {
					now++
				}
			}
			moving = max(moving, now)
			if countOn(s, "n2") >= 2 {
				short.Store(false)
			}
			return !short.Load()
		})
		if moving > 1 {
			t.Errorf("%d tasks moved at the same time, want one", moving)
		}
		time.Sleep(2 * time.Minute) // in-bubble: inWorld makes one
		s := w.server.tables.Snapshot()
		if n := healthy(s, 1); n != 4 || countOn(s, "n1") < 1 || countOn(s, "n1")+countOn(s, "n2") != 4 {
			t.Errorf("once the pressure is gone: %d healthy, %d on n1 and %d on n2", n, countOn(s, "n1"),
				countOn(s, "n2"))
		}
		if events := eventCounts(s); events["node.pressure"] != 1 {
			t.Errorf("got events %v, want one begin of pressure", events)
		}
	})
}

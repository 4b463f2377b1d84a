package controlplane_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// A stopped service keeps its room on its node until it is deleted, also under the next leader, and gets it back when
// it is started, although another service waits for it.
func TestStoppedServiceKeepsItsRoom(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1") // has 4 CPUs
		w.definition(1, 3000)
		w.definition(2, 2000)
		put := func(name string, version int, change func(*cluster.Service)) {
			svc := &cluster.Service{
				Cluster: "c", Name: name, Count: 1, Definition: cluster.Ref{Name: "d", Version: version}, Priority: 500,
				OnDisconnect: cluster.DisconnectKeep, Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now()},
			}
			change(svc)
			w.put(p.Service("c", name), svc)
		}
		kept := func(stopped, deleted bool) {
			put("web", 1, func(svc *cluster.Service) {
				svc.KeepRoom, svc.Stopped, svc.Deleted = true, stopped, deleted
				svc.Placement.Constraints = []cluster.Constraint{
					{Attribute: "node.name", Op: cluster.OpEqual, Value: "n1"},
				}
			})
		}
		other := cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "other"}
		waits := func(*store.Snapshot) bool {
			got, ok := w.server.plane.Waiting("c.other.1.0")
			return ok && strings.Contains(got.Sentence, "kept for the service c/web")
		}
		runs := func(o cluster.OwnerRef) int { return countRunning(w.server.tables.Snapshot(), o, "n1") }
		web := cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"}

		kept(false, false)
		w.until(10*time.Second, "web is healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 1 })
		kept(true, false)
		w.until(10*time.Second, "web has stopped", func(s *store.Snapshot) bool {
			for row := range s.Attempts(web) {
				if row.Standing() {
					return false
				}
			}
			return true
		})
		put("other", 2, func(svc *cluster.Service) { svc.Priority = 900 })
		w.until(10*time.Second, "the other service waits for the kept room", waits)
		w.compareViews()

		w.server.stop()
		w.start()
		w.until(20*time.Second, "it waits under the next leader", waits)
		if n := runs(other); n != 0 {
			t.Errorf("%d tasks of the other service run, want none", n)
		}

		kept(false, false)
		w.until(10*time.Second, "web runs again", func(s *store.Snapshot) bool { return healthy(s, 1) == 1 })
		if n := runs(other); n != 0 {
			t.Errorf("%d tasks of the other service run beside web, want none", n)
		}
		kept(true, false)
		w.until(10*time.Second, "the other service waits again", waits)
		kept(true, true)
		w.until(20*time.Second, "the other service gets the room", func(*store.Snapshot) bool {
			return runs(other) == 1
		})
	})
}

// A service that was never started keeps its room, too.
func TestCreatedServiceKeepsItsRoom(t *testing.T) {
	inWorld(t, func(_ *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 3000)
		w.put(p.Service("c", "idle"), &cluster.Service{
			Cluster: "c", Name: "idle", Count: 1, Definition: cluster.Ref{Name: "d", Version: 1}, Priority: 500,
			Stopped: true, KeepRoom: true, Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now()},
			Placement: cluster.Placement{Constraints: []cluster.Constraint{
				{Attribute: "node.name", Op: cluster.OpEqual, Value: "n1"},
			}},
		})
		w.service(1, 1, 1)
		w.until(10*time.Second, "web waits for the kept room", func(*store.Snapshot) bool {
			got, ok := w.server.plane.Waiting("c.web.1.0")
			return ok && strings.Contains(got.Sentence, "CPU short by 2 CPUs, some of it kept for the service c/idle")
		})
	})
}

// A stopped service keeps its devices, also under the next leader, and gets devices of the kind again.
func TestStoppedServiceKeepsItsDevices(t *testing.T) {
	inWorld(t, func(_ *testing.T, w *world) {
		gpus := []cluster.Device{{ID: "gpu-0", Type: "gpu", Numa: -1}, {ID: "gpu-1", Type: "gpu", Numa: -1}}
		w.node("n1", func(a *agent) { a.devices = gpus })
		for v, count := range []int{1, 1, 2} {
			w.put(p.Definition(cluster.Ref{Name: "d", Version: v + 1}), &cluster.TaskDefinition{
				Name: "d", Version: v + 1, Containers: []cluster.Container{{
					Name: "main", Image: "i", Resources: cluster.Resources{
						Devices: []cluster.DeviceRequest{{Type: "gpu", Count: count}},
					},
				}},
			})
		}
		kept := func(stopped bool) {
			w.put(p.Service("c", "idle"), &cluster.Service{
				Cluster: "c", Name: "idle", Count: 1, Definition: cluster.Ref{Name: "d", Version: 2}, Priority: 500,
				Stopped: stopped, KeepRoom: true, Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now()},
				Placement: cluster.Placement{Constraints: []cluster.Constraint{
					{Attribute: "node.name", Op: cluster.OpEqual, Value: "n1"},
				}},
			})
		}
		waits := func(*store.Snapshot) bool {
			got, ok := w.server.plane.Waiting("c.web.1.0")
			return ok && strings.Contains(got.Sentence, "too few gpu free (some of them kept for the service c/idle")
		}
		idle := cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "idle"}
		kept(true)
		w.service(1, 3, 1)
		w.until(10*time.Second, "web waits for the kept device", waits)
		w.compareViews()
		w.server.stop()
		w.start()
		w.until(20*time.Second, "web waits under the next leader", waits)
		kept(false)
		w.until(10*time.Second, "idle runs on its device", func(s *store.Snapshot) bool {
			return countRunning(s, idle, "n1") == 1
		})
		w.service(1, 2, 2)
		w.until(10*time.Second, "web runs on the other device", func(s *store.Snapshot) bool {
			return len(heldDevices(s)) == 1
		})
	})
}

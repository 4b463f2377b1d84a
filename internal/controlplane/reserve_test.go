package controlplane_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// heldDevices returns the devices that tasks of the service hold, in order.
func heldDevices(s *store.Snapshot) []string {
	out := []string{}
	for row := range s.Attempts(cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"}) {
		if row.Standing() && row.Desired != nil {
			for _, d := range row.Desired.Devices {
				out = append(out, row.Node+"/"+d.ID)
			}
		}
	}
	slices.Sort(out)
	return out
}

// The next leader knows the devices that tasks hold: no device is given twice, and a task without a free one waits.
func TestDevicesStayReservedAcrossATakeover(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1", func(a *agent) {
			a.devices = []cluster.Device{
				{ID: "gpu-0", Type: "gpu", Numa: -1},
				{ID: "gpu-1", Type: "gpu", Numa: -1},
				{ID: "gpu-2", Type: "gpu", Numa: -1},
			}
		})
		w.put(p.Definition(cluster.Ref{Name: "d", Version: 1}), &cluster.TaskDefinition{
			Name: "d", Version: 1, Containers: []cluster.Container{
				{Name: "main", Image: "i", Resources: cluster.Resources{
					CPU: 100, Devices: []cluster.DeviceRequest{{Type: "gpu", Count: 1}},
				}},
			},
		})
		w.service(2, 1, 1)
		w.until(10*time.Second, "2 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 2 })
		before := heldDevices(w.server.tables.Snapshot())
		w.server.stop()
		w.start()
		w.service(4, 1, 1)
		w.until(20*time.Second, "3 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 3 })
		time.Sleep(10 * time.Second) // in-bubble: inWorld makes one
		s := w.server.tables.Snapshot()
		if diff := cmp.Diff([]string{"n1/gpu-0", "n1/gpu-1", "n1/gpu-2"}, heldDevices(s)); diff != "" {
			t.Errorf("devices, after %v before (-want +got):\n%s", before, diff)
		}
		if got := healthy(s, 1); got != 3 {
			t.Errorf("%d are healthy, want 3: there is no device for the fourth", got)
		}
		w.service(1, 1, 1)
		w.until(20*time.Second, "1 left", func(s *store.Snapshot) bool { return len(heldDevices(s)) == 1 })
		w.service(3, 1, 1)
		w.until(20*time.Second, "what was given back is taken again", func(s *store.Snapshot) bool {
			return len(heldDevices(s)) == 3 && healthy(s, 1) == 3
		})
	})
}

// A requirement to be away from tasks with some labels also applies to later tasks, and after changes of labels.
func TestOthersAreKeptAway(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 100)
		service := func(name string, labels cluster.Labels, relations ...cluster.Relation) {
			w.put(p.Service("c", name), &cluster.Service{
				Cluster: "c", Name: name, Count: 1, Definition: cluster.Ref{Name: "d", Version: 1}, Priority: 500,
				Labels:       labels,
				OnDisconnect: cluster.DisconnectKeep, Placement: cluster.Placement{Relations: relations},
				Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now()},
			})
		}
		well := func(name string) func(*store.Snapshot) bool {
			return func(s *store.Snapshot) bool {
				for row := range s.Attempts(cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: name}) {
					if row.Outcome == nil && row.Observed.Healthy() {
						return true
					}
				}
				return false
			}
		}
		away := cluster.Relation{
			Labels: cluster.Labels{"kind": "noisy"}, Attribute: "node.name", Away: true,
			Required: true,
		}
		service("quiet", nil, away)
		w.until(20*time.Second, "the quiet one runs", well("quiet"))
		service("loud", cluster.Labels{"kind": "noisy"})
		time.Sleep(10 * time.Second) // in-bubble: inWorld makes one
		if well("loud")(w.server.tables.Snapshot()) {
			t.Error("a noisy task was placed beside one that must not have any")
		}
		service("quiet", nil) // it has no demand any more
		w.until(20*time.Second, "the loud one runs", well("loud"))
		service("quieter", nil, away)
		time.Sleep(10 * time.Second) // in-bubble: inWorld makes one
		if well("quieter")(w.server.tables.Snapshot()) {
			t.Error("a task that must not be beside a noisy one was placed there")
		}
		service("loud", nil) // it does not have the label any more
		w.until(20*time.Second, "the quieter one runs", well("quieter"))
	})
}

// A taint keeps away tasks of daemons that do not tolerate it. Tasks that run there leave only if the taint evicts.
func TestDaemonsAndTaints(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.node("n2")
		w.definition(1, 100)
		w.put(p.Host("n2"), &cluster.Host{
			Name:   "n2",
			Taints: []cluster.Taint{{Key: "k", Effect: cluster.TaintNoSchedule}},
		})
		w.putDaemon()
		w.until(30*time.Second, "on n1 alone", daemonsAt("n1"))
		w.put(p.Host("n2"), &cluster.Host{Name: "n2"})
		w.until(30*time.Second, "on both", daemonsAt("n1", "n2"))
		w.put(p.Host("n2"), &cluster.Host{
			Name:   "n2",
			Taints: []cluster.Taint{{Key: "k", Effect: cluster.TaintNoSchedule}},
		})
		time.Sleep(20 * time.Second) // in-bubble: inWorld makes one
		if diff := cmp.Diff([]string{"n1", "n2"}, daemonPlaces(w.server.tables.Snapshot())); diff != "" {
			t.Errorf("after a taint that keeps new ones away (-want +got):\n%s", diff)
		}
		w.put(p.Host("n2"), &cluster.Host{Name: "n2", Taints: []cluster.Taint{{Key: "k", Effect: cluster.TaintEvict}}})
		w.until(30*time.Second, "not on n2", daemonsAt("n1"))
	})
}

package controlplane_test

import (
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// A reservation keeps its node by the clock. When it begins the tasks there move away. Until it ends, only tasks that
// name it get in. A new leader changes none of that.
func TestReservationKeepsItsNode(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.node("n2")
		w.definition(1, 250)
		awaitBothReady(w)
		w.putChangedService(4, func(*cluster.Service) {})
		w.until(10*time.Second, "two run on each node", func(s *store.Snapshot) bool {
			return countRunning(s, theService, "n1") == 2 && countRunning(s, theService, "n2") == 2
		})

		from := time.Now().Add(10 * time.Minute)
		w.put(p.Reservation("r"), &cluster.Reservation{
			Name: "r", Domain: cluster.DefaultDomain, Nodes: []string{"n2"}, From: from,
			Until: from.Add(10 * time.Minute),
			Lead:  cluster.Duration(time.Minute), Evict: true,
		})
		vip := cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "vip"}
		w.put(p.Service("c", "vip"), &cluster.Service{
			Cluster: "c", Name: "vip", Count: 1, Definition: cluster.Ref{Name: "d", Version: 1}, Priority: 500,
			OnDisconnect: cluster.DisconnectKeep,
			Placement:    cluster.Placement{Reservation: "r"},
			Lifespan:     cluster.Lifespan{Generation: 1, Created: time.Now()},
		})
		w.putChangedService(6, func(*cluster.Service) {})
		w.until(10*time.Second, "long before, all may run there but who waits for it", func(s *store.Snapshot) bool {
			return countRunning(s, theService, "n2") == 3 && countRunning(s, vip, "") == 0
		})

		time.Sleep(time.Until(from) - 30*time.Second) // in-bubble: inWorld makes one
		w.putChangedService(8, func(*cluster.Service) {})
		w.until(10*time.Second, "in its lead nothing new comes", func(s *store.Snapshot) bool {
			return countRunning(s, theService, "n1") == 5 && countRunning(s, theService, "n2") == 3
		})
		restartServer(w)
		w.until(time.Minute, "it has begun", func(s *store.Snapshot) bool {
			return countRunning(s, theService, "n1") == 8 && countRunning(s, theService, "n2") == 0 &&
				countRunning(s, vip, "n2") == 1
		})
		if now := time.Now(); now.Before(from) {
			t.Errorf("that was %v before its time", from.Sub(now))
		}
		restartServer(w)
		w.putChangedService(10, func(*cluster.Service) {})
		w.until(20*time.Second, "the next leader keeps it", func(s *store.Snapshot) bool {
			return countRunning(s, theService, "n1") == 10
		})
		time.Sleep(time.Minute) // in-bubble: inWorld makes one
		if s := w.server.tables.Snapshot(); countRunning(s, theService, "n2") != 0 || countRunning(s, vip, "n2") != 1 {
			t.Error("something else runs on the node that is kept")
		}

		w.putChangedService(18, func(*cluster.Service) {})
		w.until(20*time.Second, "some wait", func(s *store.Snapshot) bool {
			return countRunning(s, theService, "n1") >= 15
		})
		w.until(10*time.Minute, "it is over", func(s *store.Snapshot) bool {
			return countRunning(s, theService, "") == 18
		})
		if now := time.Now(); now.Before(from.Add(10 * time.Minute)) {
			t.Errorf("that was %v before its end", from.Add(10*time.Minute).Sub(now))
		}
		if s := w.server.tables.Snapshot(); countRunning(s, vip, "n2") != 1 {
			t.Error("who had it had to go with its end")
		}
	})
}

// awaitBothReady waits until both nodes take tasks.
func awaitBothReady(w *world) {
	w.until(10*time.Second, "both are ready", func(s *store.Snapshot) bool {
		ready := 0
		for e := range s.Nodes() {
			if e.Value.State == cluster.NodeReady {
				ready++
			}
		}
		return ready == 2
	})
}

// restartServer stops the server and starts it again.
func restartServer(w *world) {
	w.server.stop()
	w.start()
}

// A reservation that is deleted, or moved to other nodes, releases its nodes immediately. Without evict, running tasks
// continue until they end.
func TestReservationIsTakenBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.node("n2")
		w.definition(1, 250)
		awaitBothReady(w)
		w.putChangedService(4, func(*cluster.Service) {})
		w.until(10*time.Second, "two run on each node", func(s *store.Snapshot) bool {
			return countRunning(s, theService, "n2") == 2
		})
		kept := &cluster.Reservation{
			Name: "r", Domain: cluster.DefaultDomain, Nodes: []string{"n2"}, From: time.Now(),
			Until: time.Now().Add(time.Hour), Clusters: []string{"other"},
		}
		w.put(p.Reservation("r"), kept)
		w.putChangedService(8, func(*cluster.Service) {})
		w.until(10*time.Second, "what comes goes elsewhere, what is there stays", func(s *store.Snapshot) bool {
			return countRunning(s, theService, "n1") == 6 && countRunning(s, theService, "n2") == 2
		})
		moved := *kept
		moved.Nodes = []string{"n1"}
		w.put(p.Reservation("r"), &moved)
		w.putChangedService(12, func(*cluster.Service) {})
		w.until(10*time.Second, "the other node is kept", func(s *store.Snapshot) bool {
			return countRunning(s, theService, "n1") == 6 && countRunning(s, theService, "n2") == 6
		})
		w.remove(p.Reservation("r"))
		w.putChangedService(16, func(*cluster.Service) {})
		w.until(10*time.Second, "none is kept", func(s *store.Snapshot) bool {
			return countRunning(s, theService, "n1") == 8 && countRunning(s, theService, "n2") == 8
		})
	})
}

package controlplane_test

import (
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// A reservation keeps its node by the clock: what runs there moves away as it begins, who names it gets in, nobody else
// does until it ends. None of that is lost with a leader.
func TestReservationKeepsItsNode(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.node("n2")
		w.definition(1, 250)
		bothReady(w)
		w.changed(4, func(*cluster.Service) {})
		w.until(10*time.Second, "two run on each node", func(s *store.Snapshot) bool {
			return run(s, theService, "n1") == 2 && run(s, theService, "n2") == 2
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
		w.changed(6, func(*cluster.Service) {})
		w.until(10*time.Second, "long before, all may run there but who waits for it", func(s *store.Snapshot) bool {
			return run(s, theService, "n2") == 3 && run(s, vip, "") == 0
		})

		time.Sleep(time.Until(from) - 30*time.Second) // in-bubble: inWorld makes one
		w.changed(8, func(*cluster.Service) {})
		w.until(10*time.Second, "in its lead nothing new comes", func(s *store.Snapshot) bool {
			return run(s, theService, "n1") == 5 && run(s, theService, "n2") == 3
		})
		takeOver(w)
		w.until(time.Minute, "it has begun", func(s *store.Snapshot) bool {
			return run(s, theService, "n1") == 8 && run(s, theService, "n2") == 0 && run(s, vip, "n2") == 1
		})
		if now := time.Now(); now.Before(from) {
			t.Errorf("that was %v before its time", from.Sub(now))
		}
		takeOver(w)
		w.changed(10, func(*cluster.Service) {})
		w.until(20*time.Second, "the next leader holds to it", func(s *store.Snapshot) bool {
			return run(s, theService, "n1") == 10
		})
		time.Sleep(time.Minute) // in-bubble: inWorld makes one
		if s := w.server.tables.Snapshot(); run(s, theService, "n2") != 0 || run(s, vip, "n2") != 1 {
			t.Error("something else runs on the node that is kept")
		}

		w.changed(18, func(*cluster.Service) {})
		w.until(20*time.Second, "some wait", func(s *store.Snapshot) bool { return run(s, theService, "n1") >= 15 })
		w.until(10*time.Minute, "it is over", func(s *store.Snapshot) bool { return run(s, theService, "") == 18 })
		if now := time.Now(); now.Before(from.Add(10 * time.Minute)) {
			t.Errorf("that was %v before its end", from.Add(10*time.Minute).Sub(now))
		}
		if s := w.server.tables.Snapshot(); run(s, vip, "n2") != 1 {
			t.Error("who had it had to go with its end")
		}
	})
}

// bothReady waits until the nodes take tasks.
func bothReady(w *world) {
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

// takeOver has the server end, and another life of it go on.
func takeOver(w *world) {
	w.server.stop()
	w.start()
}

// A reservation that is deleted, or changed to other nodes, gives its nodes back at once; one without evict lets what
// runs there end.
func TestReservationIsTakenBack(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.node("n2")
		w.definition(1, 250)
		bothReady(w)
		w.changed(4, func(*cluster.Service) {})
		w.until(10*time.Second, "two run on each node", func(s *store.Snapshot) bool {
			return run(s, theService, "n2") == 2
		})
		kept := &cluster.Reservation{
			Name: "r", Domain: cluster.DefaultDomain, Nodes: []string{"n2"}, From: time.Now(),
			Until: time.Now().Add(time.Hour), Clusters: []string{"other"},
		}
		w.put(p.Reservation("r"), kept)
		w.changed(8, func(*cluster.Service) {})
		w.until(10*time.Second, "what comes goes elsewhere, what is there stays", func(s *store.Snapshot) bool {
			return run(s, theService, "n1") == 6 && run(s, theService, "n2") == 2
		})
		moved := *kept
		moved.Nodes = []string{"n1"}
		w.put(p.Reservation("r"), &moved)
		w.changed(12, func(*cluster.Service) {})
		w.until(10*time.Second, "the other node is kept", func(s *store.Snapshot) bool {
			return run(s, theService, "n1") == 6 && run(s, theService, "n2") == 6
		})
		w.remove(p.Reservation("r"))
		w.changed(16, func(*cluster.Service) {})
		w.until(10*time.Second, "none is kept", func(s *store.Snapshot) bool {
			return run(s, theService, "n1") == 8 && run(s, theService, "n2") == 8
		})
	})
}

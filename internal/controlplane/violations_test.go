package controlplane_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// endless makes an agent whose job tasks run until they are stopped.
func endless(a *agent) { a.endless = true }

// countRunning counts the attempts of an owner that run on a node (or on any, if node is empty) without a stop.
func countRunning(s *store.Snapshot, o cluster.OwnerRef, node string) int {
	n := 0
	for row := range s.Attempts(o) {
		if row.Live() && row.Desired != nil && row.Desired.Stop == nil && row.Observed != nil &&
			row.Observed.State == cluster.StateRunning &&
			(node == "" || row.Node == node) {
			n++
		}
	}
	return n
}

// outcomes counts the outcomes of an owner by state, reason, and whether they were free of charge.
func outcomes(s *store.Snapshot, o cluster.OwnerRef) map[string]int {
	counts := map[string]int{}
	for row := range s.Attempts(o) {
		if out := row.Outcome; out != nil {
			counts[fmt.Sprintf("%s %s free=%t", out.State, out.Reason, out.Free)]++
		}
	}
	return counts
}

var (
	theJob     = cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "batch"}
	theService = cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"}
)

func (w *world) putTaints(name string, taints ...cluster.Taint) {
	w.put(p.Host(name), &cluster.Host{Name: name, Taints: taints})
}

func evictTaint() cluster.Taint {
	return cluster.Taint{Key: "maintenance", Effect: cluster.TaintEvict, Since: time.Now()}
}

// putChangedService writes the service after is has changed it.
func (w *world) putChangedService(count int, is func(*cluster.Service)) {
	s := &cluster.Service{
		Cluster: "c", Name: "web", Count: count, Definition: cluster.Ref{Name: "d", Version: 1}, Priority: 500,
		OnDisconnect: cluster.DisconnectKeep, Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now()},
	}
	is(s)
	w.put(p.Service("c", "web"), s)
}

// A taint that evicts moves a service's tasks, and none is missing meanwhile. Tasks of a job end there free of charge
// and run elsewhere.
func TestTaintEvicts(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1", endless)
		w.definition(1, 500)
		w.service(3, 1, 1)
		w.job(2, 0)
		w.until(10*time.Second, "all run", func(s *store.Snapshot) bool {
			return healthy(s, 1) == 3 && countRunning(s, theJob, "n1") == 2
		})
		w.node("n2", endless)
		fewest := 3
		w.putTaints("n1", evictTaint())
		w.until(30*time.Second, "all run on n2", trackLeast(w, &fewest, func(s *store.Snapshot) bool {
			return countOn(s, "n1") == 0 && healthy(s, 1) == 3 && countRunning(s, theJob, "n2") == 2
		}))
		s := w.server.tables.Snapshot()
		if fewest < 3 {
			t.Errorf("healthy tasks meanwhile: at least %d, want 3", fewest)
		}
		if got := outcomes(s, theJob); got["cancelled taint free=true"] != 2 || len(got) != 1 {
			t.Errorf("outcomes of the job: %v", got)
		}
		if got := outcomes(s, theService); got["cancelled taint free=true"] != 3 {
			t.Errorf("outcomes of the service: %v", got)
		}
		w.putTaints("n1")
		w.service(6, 1, 1)
		w.until(20*time.Second, "n1 has tasks again", func(s *store.Snapshot) bool {
			return healthy(s, 1) == 6 && countOn(s, "n1") > 0
		})
	})
}

// A service's tasks that have nowhere to go stay, with a reason. A toleration lets them stay for a while anyway.
func TestTaintEvictsInTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.node("n2")
		w.definition(1, 500)
		tolerant := func(s *cluster.Service) {
			s.Placement.Tolerations = []cluster.Toleration{
				{Key: "maintenance", Effect: cluster.TaintEvict, For: cluster.Duration(time.Minute)},
			}
		}
		w.putChangedService(1, tolerant)
		w.until(10*time.Second, "1 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 1 })
		at := "n1"
		if countOn(w.server.tables.Snapshot(), "n1") == 0 {
			at = "n2"
		}
		other := map[string]string{"n1": "n2", "n2": "n1"}[at]
		w.put(p.Host(other), &cluster.Host{Name: other, Cordon: true})
		w.putTaints(at, evictTaint())
		time.Sleep(50 * time.Second) // in-bubble: inWorld makes one
		if why, ok := w.server.plane.Waiting(webTask(0)); ok {
			t.Errorf("it waits before its time: %+v", why)
		}
		time.Sleep(15 * time.Second) // in-bubble: inWorld makes one
		why, _ := w.server.plane.Waiting(webTask(0))
		if s := w.server.tables.Snapshot(); healthy(s, 1) != 1 || countOn(s, at) != 1 ||
			!strings.Contains(why.Sentence, "cordoned") {
			t.Errorf("with nowhere to go: %d healthy, %d on %s, it waits for %q", healthy(s, 1), countOn(s, at), at,
				why.Sentence)
		}
		w.put(p.Host(other), &cluster.Host{Name: other})
		w.until(20*time.Second, "it moved", func(s *store.Snapshot) bool {
			return healthy(s, 1) == 1 && countOn(s, at) == 0 && countOn(s, other) == 1
		})
	})
}

// Violations are found as nodes or specs change. A service with the policy move has its tasks moved, others keep them,
// and tasks of jobs run to their ends. A new leader finds the same violations.
func TestViolationsMove(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		label := func(zone string) cluster.Labels { return cluster.Labels{"zone": zone} }
		w.put(p.Host("n1"), &cluster.Host{Name: "n1", Labels: label("a")})
		w.put(p.Host("n2"), &cluster.Host{Name: "n2", Labels: label("b")})
		w.node("n1", endless)
		w.node("n2", endless)
		w.definition(1, 500)
		in := func(zone string, policy cluster.OnViolation) func(*cluster.Service) {
			return func(s *cluster.Service) {
				s.Placement.Constraints = []cluster.Constraint{
					{Attribute: "label.zone", Op: cluster.OpEqual, Value: zone},
				}
				s.OnViolation = policy
			}
		}
		w.putChangedService(2, in("a", ""))
		w.put(p.Job("c", "batch"), &cluster.Job{
			Cluster: "c", Name: "batch", Priority: 500, Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now()},
			Steps: []cluster.Step{{
				Name: "work", Definition: cluster.Ref{Name: "d", Version: 1}, Count: 1,
				Placement: cluster.Placement{
					Constraints: []cluster.Constraint{{Attribute: "label.zone", Op: cluster.OpEqual, Value: "a"}},
				},
			}},
		})
		w.until(10*time.Second, "all run", func(s *store.Snapshot) bool {
			return healthy(s, 1) == 2 && countRunning(s, theJob, "n1") == 1
		})
		w.put(p.Host("n1"), &cluster.Host{Name: "n1", Labels: label("b")})
		w.put(p.Host("n2"), &cluster.Host{Name: "n2", Labels: label("a")})
		time.Sleep(10 * time.Second) // in-bubble: inWorld makes one
		if s := w.server.tables.Snapshot(); countOn(s, "n2") != 0 {
			t.Errorf("%d tasks moved without a request", countOn(s, "n2"))
		}
		w.server.stop()
		w.putChangedService(2, in("a", cluster.ViolationMove)) // no leader sees the change
		w.start()
		w.until(5*time.Second, "the tables are there", func(s *store.Snapshot) bool { return healthyTasks(s) == 2 })
		fewest := 2
		w.until(time.Minute, "the service moved", trackLeast(w, &fewest, func(s *store.Snapshot) bool {
			return healthy(s, 1) == 2 && countOn(s, "n2") == 2 && countOn(s, "n1") == 1
		}))
		if got := outcomes(w.server.tables.Snapshot(), theService); got["cancelled constraint free=true"] != 2 ||
			fewest < 2 {
			t.Errorf("outcomes of the service: %v, at least %d healthy", got, fewest)
		}
		w.putChangedService(2, in("b", cluster.ViolationMove)) // the demand changes, not the nodes
		w.until(30*time.Second, "the service moved back", func(s *store.Snapshot) bool {
			return healthy(s, 1) == 2 && countOn(s, "n1") == 3 && countOn(s, "n2") == 0
		})
		if countRunning(w.server.tables.Snapshot(), theJob, "n1") != 1 {
			t.Error("the job's task did not continue")
		}
	})
}

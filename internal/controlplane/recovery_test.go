package controlplane_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// withLostWrites makes a change and restores the store's former state, as a tool of the engine does without Berth's
// knowledge. In between are that many leadership terms.
func (w *world) withLostWrites(terms int, change func()) {
	w.t.Helper()
	var snapshot bytes.Buffer
	if err := w.engine.Snapshot(w.t.Context(), "", &snapshot); err != nil {
		w.t.Fatal(err)
	}
	for range terms {
		before, _ := w.server.tables.Snapshot().Leader(cluster.DefaultDomain)
		w.server.stop()
		w.start()
		w.until(10*time.Second, "another leadership term", func(s *store.Snapshot) bool {
			l, ok := s.Leader(cluster.DefaultDomain)
			return ok && l.Value.Epoch > before.Value.Epoch
		})
	}
	change()
	w.server.stop()
	if err := w.engine.Restore(&snapshot); err != nil {
		w.t.Fatal(err)
	}
	w.start()
}

// putDecision writes the operator's decision (P1.7).
func (w *world) putDecision(state cluster.RecoveryState) {
	w.t.Helper()
	s := w.server.tables.Snapshot()
	recovery, _ := s.Recovery(cluster.DefaultDomain)
	leader, _ := s.Leader(cluster.DefaultDomain)
	r, l := *recovery.Value, *leader.Value
	r.State, r.Decided, r.By = state, time.Now().UTC(), "operator"
	l.Incarnation, l.Epoch, l.Holder = max(uint64(time.Now().UnixMilli()), r.Shown.Incarnation+1), l.Epoch+1, ""
	w.put(p.Recovery(cluster.DefaultDomain), &r)
	w.put(p.Leader(cluster.DefaultDomain), &l)
}

// T11: a store that went back is noticed by the tokens and plans that agents have seen. Until the operator decides,
// nothing is placed or stopped. Then tasks that the store does not know continue, or end.
func TestStoreThatWentBack(t *testing.T) {
	for i, decision := range []cluster.RecoveryState{
		cluster.RecoveryAdopt, cluster.RecoveryStop, cluster.RecoveryAdopt, cluster.RecoveryStop,
	} {
		terms := i / 2 * 3 // without another term only plan numbers show the loss, not tokens
		t.Run(fmt.Sprintf("%s,terms=%d", decision, terms), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a := w.node("n1")
				w.definition(1, 100)
				w.service(1, 1, 1)
				w.until(10*time.Second, "1 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 1 })
				w.withLostWrites(terms, func() {
					w.service(3, 1, 1)
					w.until(30*time.Second, "3 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 3 })
				})
				w.until(30*time.Second, "the alarm", func(s *store.Snapshot) bool {
					r, ok := s.Recovery(cluster.DefaultDomain)
					return ok && r.Value.State == cluster.RecoveryNeeded && strings.Contains(r.Value.Cause, "n1")
				})
				before := len(a.effects) // the first of them is from before the loss
				w.service(5, 1, 1)
				time.Sleep(2 * time.Minute) // in-bubble: inWorld makes one
				s := w.server.tables.Snapshot()
				if len(a.effects) != before || s.LastPlan(0) > 1 && countOn(s, "n1") > before {
					t.Errorf("while the decision was awaited: %d starts, want %d", len(a.effects), before)
				}
				for row := range s.AllAttempts() {
					if row.Desired != nil && row.Desired.Stop != nil {
						t.Errorf("%s was stopped while the decision was awaited", row.Task)
					}
				}
				if why, ok := w.server.plane.Waiting(cluster.ServiceTask("c", "web", 1, 4)); !ok ||
					!strings.Contains(why.Sentence, "recover") {
					t.Errorf("the reason is %q", why.Sentence)
				}
				w.putDecision(decision)
				w.until(time.Minute, "5 healthy", func(s *store.Snapshot) bool {
					return healthy(s, 1) == 5 && countRecords(s) == 5
				})
				stopped := eventCounts(w.server.tables.Snapshot())["task.stopping"]
				switch {
				case decision == cluster.RecoveryAdopt && (stopped != 0 || len(a.effects) != 5):
					t.Errorf("adopted: %d stops and %d starts, want 0 and 5", stopped, len(a.effects))
				case decision == cluster.RecoveryStop && (stopped == 0 || len(a.effects) <= 5):
					t.Errorf("stopped: %d stops and %d starts, want some, and more than 5", stopped, len(a.effects))
				}
			})
		})
	}
}

// The store goes back while the server runs, as Consul does when its operator restores it. The alarm comes although no
// agent has seen a later token or plan. Until the operator decides, nothing is placed or stopped. Afterwards lost tasks
// continue, because their node reports in full again before anything is placed on it.
func TestStoreThatWentBackUnderTheServer(t *testing.T) {
	for _, lost := range []struct {
		name  string
		count int // the tasks that the service gets, of which the restored store knows one; 0 changes nothing
		// away says that the agent does not reach a server from the restore until after the decision.
		away bool
	}{{"tasks", 3, false}, {"a cluster", 0, false}, {"tasks of a node that is away", 3, true}} {
		t.Run(lost.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				a := w.node("n1")
				w.definition(1, 100)
				w.service(1, 1, 1)
				w.until(10*time.Second, "1 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 1 })
				var saved bytes.Buffer
				if err := w.engine.Snapshot(t.Context(), "", &saved); err != nil {
					t.Fatal(err)
				}
				w.put(p.Cluster("later"), &cluster.Cluster{Name: "later"})
				count := max(lost.count, 1)
				if lost.count > 0 {
					w.service(count, 1, 1)
				}
				w.until(30*time.Second, "all healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == count })
				time.Sleep(10 * time.Second) // in-bubble: inWorld makes one; all is reported and projected
				if lost.away {
					a.kill()
				}
				if err := w.engine.Restore(&saved); err != nil {
					t.Fatal(err)
				}
				w.until(30*time.Second, "the alarm", func(s *store.Snapshot) bool {
					r, ok := s.Recovery(cluster.DefaultDomain)
					return ok && r.Value.State == cluster.RecoveryNeeded
				})
				if n := eventCounts(w.server.tables.Snapshot())["recovery.needed"]; n != 1 {
					t.Errorf("events of the alarm: got %d, want 1", n)
				}
				before := len(a.effects)
				w.service(count, 1, 1)
				w.putDecision(cluster.RecoveryAdopt)
				if lost.away {
					time.Sleep(2 * time.Second) // in-bubble: inWorld makes one; less than makes the node silent
					a.run()
				}
				w.until(time.Minute, "all healthy again", func(s *store.Snapshot) bool {
					return healthy(s, 1) == count && countRecords(s) == count
				})
				time.Sleep(time.Minute) // in-bubble: inWorld makes one
				s := w.server.tables.Snapshot()
				if r, _ := s.Recovery(cluster.DefaultDomain); r.Value.State != cluster.RecoveryAdopt {
					t.Errorf("after the decision the recovery is %s: %s", r.Value.State, r.Value.Cause)
				}
				if len(a.effects) != before || eventCounts(s)["task.stopping"] != 0 {
					t.Errorf("%d starts and %d stops, want %d and none", len(a.effects),
						eventCounts(s)["task.stopping"], before)
				}
			})
		})
	}
}

// After a restore the leader waits for the decision from the start.
func TestRecoveryIsAwaitedFromTheStart(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.server.stop()
		w.put(p.Recovery(cluster.DefaultDomain),
			&cluster.Recovery{State: cluster.RecoveryNeeded, Cause: "a snapshot was restored"})
		w.start()
		w.node("n1")
		w.definition(1, 100)
		w.service(1, 1, 1)
		time.Sleep(time.Minute) // in-bubble: inWorld makes one
		s := w.server.tables.Snapshot()
		if s.LastPlan(0) != 0 || node(s, "n1").State != cluster.NodeReady {
			t.Errorf("plan %d, n1 is %q; want no plan and a verdict", s.LastPlan(0), node(s, "n1").State)
		}
		w.putDecision(cluster.RecoveryAdopt)
		w.until(time.Minute, "1 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 1 })
	})
}

// A store that goes back a second time is noticed too, although the record of the first recovery exists.
func TestStoreThatWentBackTwice(t *testing.T) {
	for _, decision := range []cluster.RecoveryState{cluster.RecoveryAdopt, cluster.RecoveryStop} {
		t.Run(string(decision), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.node("n1")
				w.definition(1, 100)
				w.service(1, 1, 1)
				w.until(10*time.Second, "1 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 1 })
				for _, count := range []int{3, 5} {
					w.withLostWrites(0, func() {
						w.service(count, 1, 1)
						w.until(time.Minute, "the service grew", func(s *store.Snapshot) bool {
							return healthy(s, 1) == count
						})
					})
					w.until(30*time.Second, "the alarm", func(s *store.Snapshot) bool {
						r, ok := s.Recovery(cluster.DefaultDomain)
						return ok && r.Value.State == cluster.RecoveryNeeded && strings.Contains(r.Value.Cause, "n1") &&
							r.Value.Plan >= 2
					})
					w.service(count, 1, 1)
					w.putDecision(decision)
					w.until(time.Minute, "all are healthy", func(s *store.Snapshot) bool {
						return healthy(s, 1) == count && countRecords(s) == count
					})
				}
			})
		})
	}
}

// A node was away while the operator decided. Its tasks belong to the decided loss, not to a second one.
func TestNodeThatMissedTheDecision(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 1000)
		w.service(1, 1, 1)
		w.until(10*time.Second, "1 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 1 })
		away := w.node("n2")
		w.withLostWrites(0, func() {
			w.service(7, 1, 1)
			w.until(30*time.Second, "7 healthy", func(s *store.Snapshot) bool {
				return healthy(s, 1) == 7 && countOn(s, "n2") > 0 && countOn(s, "n1") > 1
			})
			away.kill()
		})
		w.until(30*time.Second, "the alarm", func(s *store.Snapshot) bool {
			r, ok := s.Recovery(cluster.DefaultDomain)
			return ok && r.Value.State == cluster.RecoveryNeeded
		})
		w.putDecision(cluster.RecoveryAdopt)
		time.Sleep(10 * time.Second) // in-bubble: inWorld makes one
		away.run()
		for range 2 { // at the second return it has seen the new incarnation
			time.Sleep(10 * time.Second) // in-bubble: inWorld makes one
			away.kill()
			away.run()
		}
		w.service(7, 1, 1)
		w.until(time.Minute, "7 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 7 })
		if r, _ := w.server.tables.Snapshot().Recovery(cluster.DefaultDomain); r.Value.State != cluster.RecoveryAdopt {
			t.Errorf("the recovery is %s: %s", r.Value.State, r.Value.Cause)
		}
	})
}

// During a recovery no node is forgotten, as the lost records may name it, and none is released.
func TestNoNodeGoesWhileTheDecisionIsAwaited(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		gone := w.node("n2")
		w.node("n3")
		w.until(10*time.Second, "all are ready", func(s *store.Snapshot) bool {
			return node(s, "n1").State == cluster.NodeReady && node(s, "n2").State == cluster.NodeReady &&
				node(s, "n3").State == cluster.NodeReady
		})
		w.put(p.Recovery(cluster.DefaultDomain),
			&cluster.Recovery{State: cluster.RecoveryNeeded, Cause: "a snapshot was restored"})
		gone.kill()
		w.put(p.Host("n2"), &cluster.Host{Name: "n2", Gone: true})
		w.put(p.Host("n3"), &cluster.Host{Name: "n3", Domain: "elsewhere"})
		time.Sleep(2 * time.Minute) // in-bubble: inWorld makes one
		s := w.server.tables.Snapshot()
		if n := node(s, "n2"); n.State != cluster.NodeDown {
			t.Errorf("the node that is gone is %+v, want it down and not forgotten", n)
		}
		if n := node(s, "n3"); n.Domain != cluster.DefaultDomain {
			t.Errorf("the node that goes elsewhere is %+v, want it of this domain still", n)
		}
		w.putDecision(cluster.RecoveryAdopt)
		w.until(30*time.Second, "both go", func(s *store.Snapshot) bool {
			_, known := s.Node("n2")
			return !known && node(s, "n3").Domain == ""
		})
	})
}

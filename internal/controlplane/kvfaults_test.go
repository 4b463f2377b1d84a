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

// A record that a program withdraws or changes while the leader carries it out starts nothing, and the other one of the
// same plan is carried out.
func TestWithdrawnRecordStartsNothing(t *testing.T) {
	changes := map[string]func(w *world){
		"deleted":       func(w *world) { w.remove(p.Desired("n1", web(0))) },
		"another value": func(w *world) { w.raw(p.Desired("n1", web(0)), []byte(`{"attempt":9}`)) },
		"a stop":        func(w *world) { w.raw(p.Desired("n1", web(0)), []byte(`{"stop":true}`)) },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.placedByRecords()
				var takes atomic.Int64
				before := w.slowPlans(&takes)
				a := w.node("n1")
				w.definition(1, 500)
				w.service(2, 1, 1)
				w.until(10*time.Second, "the tasks wait", func(*store.Snapshot) bool {
					_, waits := w.server.plane.Waiting(web(1))
					return waits
				})
				withdraw := func() {
					before.Store(nil)
					change(w)
				}
				before.Store(&withdraw)
				for i := range 2 {
					w.raw(p.Desired("n1", web(i)), []byte(`{}`))
				}
				w.until(30*time.Second, "the other one runs", func(s *store.Snapshot) bool {
					return runsOn(s, "n1", 1, 1)
				})
				time.Sleep(time.Minute) // in-bubble: the first one would run
				if _, placed := w.server.tables.Snapshot().Attempt(web(0), 1); placed || len(a.effects) != 1 {
					t.Errorf("the withdrawn one was placed: %v; %d tasks were started", placed, len(a.effects))
				}
				w.raw(p.Desired("n1", web(0)), []byte(`{}`))
				w.until(30*time.Second, "it runs by its next record", func(s *store.Snapshot) bool {
					return runsOn(s, "n1", 0, 1)
				})
			})
		})
	}
}

// A record at the key of an attempt that has ended, while its agent still has it, would hinder its removal: it is
// refused, and the attempt goes.
func TestRecordBesideRemains(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.node("n1", func(a *agent) { a.keepsEnded = true })
		w.definition(1, 500)
		w.placedByRecords()
		w.put(p.Service("c", "web"), &cluster.Service{
			Cluster: "c", Name: "web", Count: 1, Definition: cluster.Ref{Name: "d", Version: 1}, Priority: 500,
			OnDisconnect: cluster.DisconnectKeep, Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now()},
			Update: cluster.Update{MinHealthy: &cluster.Portion{}},
		})
		w.raw(p.Desired("n1", web(0)), []byte(`{}`))
		w.until(time.Minute, "it runs", func(s *store.Snapshot) bool { return runsOn(s, "n1", 0, 1) })
		w.raw(p.Desired("n1", web(0)), []byte(`{"stop":true}`))
		w.until(time.Minute, "it ended, and its records are there", func(s *store.Snapshot) bool {
			row, ok := s.Attempt(web(0), 1)
			return ok && row.Outcome != nil && row.ObservedRev != 0
		})
		w.server.stop()
		w.remove(p.Desired("n1", web(0)))
		w.raw(p.Desired("n1", web(0)), []byte(`{}`))
		w.start()
		w.until(time.Minute, "it is refused", func(s *store.Snapshot) bool {
			_, waits := s.ForeignRow("n1", web(0))
			got := refusals(s)
			return !waits && len(got) == 1 && strings.Contains(got[0], "an earlier attempt")
		})
		a.kill()
		a.keepsEnded = false
		a.run()
		w.until(time.Minute, "nothing is left", func(s *store.Snapshot) bool {
			row, ok := s.Attempt(web(0), 1)
			return ok && !row.Standing()
		})
		w.raw(p.Desired("n1", web(0)), []byte(`{}`))
		w.until(time.Minute, "the next one runs", func(s *store.Snapshot) bool { return runsOn(s, "n1", 0, 2) })
	})
}

// A move that a program withdraws before the task has left does not take place. The task stays.
func TestWithdrawnMove(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1", func(a *agent) { a.takes = 20 * time.Second })
		w.node("n2")
		w.definition(1, 500)
		w.placedByRecords()
		w.service(1, 1, 1)
		w.raw(p.Desired("n1", web(0)), []byte(`{}`))
		w.until(time.Minute, "it runs, and the rollout has ended", func(s *store.Snapshot) bool {
			r, ok := s.Rollout("c", "web")
			return runsOn(s, "n1", 0, 1) && ok && r.Value.State.Ended()
		})
		w.raw(p.Desired("n2", web(0)), []byte(`{}`))
		w.remove(p.Desired("n2", web(0)))
		time.Sleep(2 * time.Minute) // in-bubble: a move would show
		s := w.server.tables.Snapshot()
		for row := range s.TaskAttempts(web(0)) {
			if row.Node == "n2" {
				t.Errorf("attempt %d is on n2", row.Number)
			}
		}
	})
}

// A refusal is written again if the store does not take it at first.
func TestRefusalIsWrittenAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 500)
		w.placedByRecords()
		var failing atomic.Bool
		w.server.stop()
		w.faulty = w.engine.Open(memory.Hooks{Before: func(_ context.Context, groups []store.Group) error {
			for _, g := range groups {
				for _, op := range g.Ops {
					if failing.Load() && op.Delete && op.Key == p.Desired("n9", web(0)) {
						return store.ErrUnavailable
					}
				}
			}
			return nil
		}})
		failing.Store(true)
		w.start()
		w.service(1, 1, 1)
		w.raw(p.Desired("n9", web(0)), []byte(`{}`))
		time.Sleep(10 * time.Second) // in-bubble: some refusals fail
		failing.Store(false)
		w.until(2*time.Minute, "it is refused", func(s *store.Snapshot) bool {
			_, waits := s.ForeignRow("n9", web(0))
			return !waits && len(refusals(s)) == 1
		})
	})
}

// The records of a gang wait until each of its tasks has one.
func TestRecordsOfAGang(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.node("n2")
		w.definition(1, 500)
		w.placedByRecords()
		w.put(p.Job("c", "batch"), &cluster.Job{
			Cluster: "c", Name: "batch", Priority: 500, Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now()},
			Steps: []cluster.Step{{
				Name: "work", Definition: cluster.Ref{Name: "d", Version: 1}, Count: 2, Gang: &cluster.Gang{},
			}},
		})
		task := func(i int) cluster.TaskID { return cluster.JobTask("c", "batch", 1, "work", i) }
		w.raw(p.Desired("n1", task(0)), []byte(`{}`))
		time.Sleep(time.Minute) // in-bubble: a refusal would show
		w.raw(p.Desired("n2", task(1)), []byte(`{}`))
		w.until(time.Minute, "both succeeded", func(s *store.Snapshot) bool {
			first, ok := s.Attempt(task(0), 1)
			second, placed := s.Attempt(task(1), 1)
			return ok && placed && first.Outcome != nil && second.Outcome != nil && first.Node == "n1"
		})
		if got := refusals(w.server.tables.Snapshot()); len(got) != 0 {
			t.Errorf("refused: %q", got)
		}
	})
}

// A move and a stop wait for a new leader to hear of the nodes that they concern.
func TestRecordsWaitForReports(t *testing.T) {
	for name, r := range map[string]struct{ node, value string }{
		"move": {"n2", `{}`}, "stop": {"n1", `{"stop":true}`},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.node("n1")
				b := w.node("n2")
				w.definition(1, 500)
				w.placedByRecords()
				w.put(p.Service("c", "web"), &cluster.Service{
					Cluster: "c", Name: "web", Count: 2, Definition: cluster.Ref{Name: "d", Version: 1}, Priority: 500,
					OnDisconnect: cluster.DisconnectKeep,
					Lifespan:     cluster.Lifespan{Generation: 1, Created: time.Now()},
					Update:       cluster.Update{MinHealthy: &cluster.Portion{N: 1}},
				})
				w.raw(p.Desired("n1", web(0)), []byte(`{}`))
				w.raw(p.Desired("n2", web(1)), []byte(`{}`))
				w.until(time.Minute, "both run, and the rollout has ended", func(s *store.Snapshot) bool {
					r, ok := s.Rollout("c", "web")
					return runsOn(s, "n1", 0, 1) && runsOn(s, "n2", 1, 1) && ok && r.Value.State.Ended()
				})
				b.kill()
				w.server.stop()
				w.start()
				w.until(time.Second, "the server knows the attempt", func(s *store.Snapshot) bool {
					row, ok := s.Attempt(web(0), 1)
					return ok && row.Desired != nil
				})
				w.raw(p.Desired(r.node, web(0)), []byte(r.value))
				time.Sleep(3 * time.Second) // in-bubble: a refusal would show
				b.run()
				w.until(2*time.Minute, "the first attempt ended", func(s *store.Snapshot) bool {
					row, ok := s.Attempt(web(0), 1)
					return ok && row.Outcome != nil
				})
				if got := refusals(w.server.tables.Snapshot()); len(got) != 0 {
					t.Errorf("refused: %q", got)
				}
			})
		})
	}
}

// A record that replaced another one before any server saw it may have replaced Berth's own. It is refused once its
// node has reported, with what to do.
func TestRecordThatWasWrittenTwice(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 500)
		w.placedByRecords()
		w.service(1, 1, 1)
		w.server.stop()
		w.raw(p.Desired("n1", web(0)), []byte(`{}`))
		w.raw(p.Desired("n1", web(0)), []byte(`{"reason":"again"}`))
		w.start()
		w.until(time.Minute, "it is refused", func(s *store.Snapshot) bool {
			got := refusals(s)
			return len(got) == 1 && strings.Contains(got[0], "create the key")
		})
		w.raw(p.Desired("n1", web(0)), []byte(`{}`))
		w.until(time.Minute, "it runs", func(s *store.Snapshot) bool { return healthy(s, 1) == 1 })
	})
}

// What a program writes comes into events clipped, and never as it is in a key.
func TestEventsOfRecordsAreBounded(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 500)
		w.placedByRecords()
		w.service(1, 1, 1)
		w.raw(p.Desired("n1", web(0)), []byte(`{"attempt":`+strings.Repeat("1", 300_000)+`}`))
		w.raw(string(p)+"state/\x1b[2J\nfake/c.web.1.0", []byte(`{}`))
		w.raw(string(p)+"state/n1/"+strings.Repeat("x", 10_000), []byte(`{}`))
		w.until(time.Minute, "all are gone", func(s *store.Snapshot) bool {
			n := 0
			for row := range s.AllAttempts() {
				if row.IsForeign() {
					n++
				}
			}
			return n == 0 && len(refusals(s)) > 0
		})
		for b := range w.server.tables.Snapshot().EventBatches() {
			for _, e := range b.Value.Events {
				if text := e.Node + e.Message; len(text) > 1000 || strings.ContainsAny(text, "\x1b\n") {
					t.Errorf("the event %s says %.100q", e.Type, text)
				}
			}
		}
	})
}

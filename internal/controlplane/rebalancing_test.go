package controlplane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
)

// onOneNode starts several nodes. All tasks of the service are on the first, as the others came later.
func (w *world) onOneNode(count, nodes int, is ...func(*cluster.Service)) {
	w.t.Helper()
	w.node("n1")
	w.definition(1, 500)
	spec := &cluster.Service{
		Cluster: "c", Name: "web", Count: count, Definition: cluster.Ref{Name: "d", Version: 1}, Priority: 500,
		OnDisconnect: cluster.DisconnectKeep, Lifespan: cluster.Lifespan{Generation: 1, Created: time.Now()},
	}
	for _, change := range is {
		change(spec)
	}
	w.put(p.Service("c", "web"), spec)
	w.until(30*time.Second, "all are healthy and rolled out", func(s *store.Snapshot) bool {
		return healthy(s, 1) == count && rolloutOf(s).State == cluster.RolloutComplete
	})
	for i := range nodes - 1 {
		w.node(fmt.Sprintf("n%d", i+2))
	}
	w.until(10*time.Second, "all nodes are ready", func(s *store.Snapshot) bool {
		for i := range nodes {
			if node(s, fmt.Sprintf("n%d", i+1)).State != cluster.NodeReady {
				return false
			}
		}
		return true
	})
}

func webTask(index int) cluster.TaskID { return cluster.ServiceTask("c", "web", 1, index) }

// putRebalancing writes a rebalancing as the API server would. Moves are "index to", from the present node of the task.
func (w *world) putRebalancing(id uint64, parallel int, moves ...string) {
	w.t.Helper()
	s := w.server.tables.Snapshot()
	rec := &cluster.Rebalancing{
		ID: id, Domain: cluster.DefaultDomain, Created: time.Now(),
		State: cluster.RebalancingRunning, Parallel: parallel,
	}
	for _, text := range moves {
		var index int
		var to string
		if _, err := fmt.Sscan(text, &index, &to); err != nil {
			w.t.Fatal(err)
		}
		m := cluster.RebalancingMove{
			Task: webTask(index), To: to, Gain: 100, Message: "it is emptier",
			State: cluster.MoveWaiting,
		}
		for row := range s.TaskAttempts(m.Task) {
			if m.Attempt, m.From = row.Number, row.Node; row.Desired != nil {
				m.UUID = row.Desired.UUID
			}
		}
		rec.Moves = append(rec.Moves, m)
	}
	w.put(p.Rebalancing(id), rec)
}

// rebalancingOf returns a rebalancing; callers must not change it.
func rebalancingOf(s *store.Snapshot, id uint64) *cluster.Rebalancing {
	if e, ok := s.Rebalancing(id); ok {
		return e.Value
	}
	return &cluster.Rebalancing{State: cluster.RebalancingRunning}
}

// moveStates returns the moves of a rebalancing as lines.
func moveStates(r *cluster.Rebalancing) (out []string) {
	for _, m := range r.Moves {
		parts, _ := m.Task.Parts()
		out = append(out, strings.TrimSpace(fmt.Sprintf("%d %s %s", parts.Index, m.State, m.Reason)))
	}
	return out
}

// newestPlaces returns where the newest attempts of the service's tasks are, as "node/attempt".
func newestPlaces(s *store.Snapshot) []string {
	var out []string
	for row := range s.Attempts(cluster.OwnerRef{Kind: cluster.KindService, Cluster: "c", Name: "web"}) {
		parts, _ := row.Task.Parts()
		for len(out) <= parts.Index {
			out = append(out, "")
		}
		out[parts.Index] = fmt.Sprintf("%s/%d", row.Node, row.Number)
	}
	return out
}

// awaitEnded waits until the rebalancing has ended, count tasks are healthy, and no other attempts are left.
func (w *world) awaitEnded(id uint64, count int) *store.Snapshot {
	w.t.Helper()
	w.until(10*time.Minute, fmt.Sprintf("rebalancing %d has ended", id), func(s *store.Snapshot) bool {
		return rebalancingOf(s, id).State != cluster.RebalancingRunning && healthy(s, 1) == count &&
			countRecords(s) == count
	})
	return w.server.tables.Snapshot()
}

// Moves are carried out in their order, at most so many at a time, each to the node that it names. No task is missing
// meanwhile. The reverse list moves all tasks back.
func TestRebalancingMovesInOrder(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.onOneNode(5, 3)
		before := w.server.tables.Snapshot()
		w.putRebalancing(1, 2, "4 n2", "3 n3", "2 n2", "1 n3")
		fewest, most := 5, 0
		var order []int
		w.until(5*time.Minute, "it is done", trackLeast(w, &fewest, func(s *store.Snapshot) bool {
			r := rebalancingOf(s, 1)
			most = max(most, r.Counts().Moving)
			for _, m := range r.Moves {
				parts, _ := m.Task.Parts()
				if m.State != cluster.MoveWaiting && !slices.Contains(order, parts.Index) {
					order = append(order, parts.Index)
				}
			}
			return r.State == cluster.RebalancingDone
		}))
		if fewest < 5 || most != 2 {
			t.Errorf("at least %d were healthy, want 5; %d moved at a time, want 2", fewest, most)
		}
		if diff := cmp.Diff([]int{4, 3, 2, 1}, order); diff != "" {
			t.Errorf("the order of the moves (-want +got):\n%s", diff)
		}
		s := w.awaitEnded(1, 5)
		if diff := cmp.Diff([]string{"n1/1", "n3/2", "n2/2", "n3/2", "n2/2"}, newestPlaces(s)); diff != "" {
			t.Errorf("places (-want +got):\n%s", diff)
		}
		events := eventCounts(s)
		if c := rebalancingOf(s, 1).Counts(); c.Done != 4 || c.Gain != 400 || events["rebalance.ended"] != 1 ||
			events["task.moving"] != 4 {
			t.Errorf("got %+v, and events %v", c, events)
		}
		w.putRebalancing(2, 5, "1 n1", "2 n1", "3 n1", "4 n1")
		s = w.awaitEnded(2, 5)
		if diff := cmp.Diff([]string{"n1/1", "n1/3", "n1/3", "n1/3", "n1/3"}, newestPlaces(s)); diff != "" {
			t.Errorf("places after the undo (-want +got):\n%s", diff)
		}
		for index := range 5 {
			row, _ := before.Attempt(webTask(index), 1)
			if row == nil || row.Node != "n1" {
				t.Errorf("task %d was not on n1 before", index)
			}
		}
	})
}

// A service whose replaced tasks must not overlap is never below the minimum of its policy. It gives up one task where
// it may, and otherwise none.
func TestRebalancingKeepsToTheBudget(t *testing.T) {
	for _, c := range []struct {
		name  string
		least cluster.Portion
		moves string
		want  int
	}{
		{"one may be missing", cluster.Portion{N: 2}, "done", 2},
		{"none may be missing", cluster.Portion{N: 3}, "passed-over permit", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.onOneNode(3, 3, func(s *cluster.Service) {
					s.OnDisconnect, s.Update.MinHealthy = cluster.DisconnectWait, &c.least
				})
				w.putRebalancing(1, 5, "2 n2", "1 n3")
				fewest := 3
				w.until(5*time.Minute, "it is done", trackLeast(w, &fewest, func(s *store.Snapshot) bool {
					return rebalancingOf(s, 1).State == cluster.RebalancingDone
				}))
				if fewest != c.want {
					t.Errorf("at least %d were healthy, want %d", fewest, c.want)
				}
				if diff := cmp.Diff([]string{"2 " + c.moves, "1 " + c.moves},
					moveStates(rebalancingOf(w.awaitEnded(1, 3), 1))); diff != "" {
					t.Errorf("moves (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A move that cannot be carried out is passed over, with a reason and an event, and the others continue.
func TestRebalancingPassesOver(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(w *world)
		want   []string
		places []string
	}{
		"the node is cordoned": {
			func(w *world) { w.put(p.Host("n2"), &cluster.Host{Name: "n2", Cordon: true}) },
			[]string{"2 passed-over cordoned", "1 done"},
			[]string{"n1/1", "n3/2", "n1/1"},
		},
		"the task moved already": {
			func(w *world) {
				w.putRebalancing(7, 1, "2 n3")
				w.awaitEnded(7, 3)
			},
			[]string{"2 passed-over replaced", "1 done"},
			[]string{"n1/1", "n3/2", "n3/2"},
		},
		"it was scaled away": {
			func(w *world) {
				w.service(2, 1, 1)
				w.until(time.Minute, "two are left", func(s *store.Snapshot) bool {
					return healthy(s, 1) == 2 && countRecords(s) == 2
				})
			},
			[]string{"2 passed-over scale-down", "1 done"},
			[]string{"n1/1", "n3/2", "n1/1"},
		},
		"a rollout has begun": {
			func(w *world) {
				e, _ := w.server.tables.Snapshot().Service("c", "web")
				next := *e.Value
				next.Generation, next.Definition.Version, next.Rollout.Paused = 2, 2, true
				w.definition(2, 500)
				w.put(p.Service("c", "web"), &next)
				w.until(10*time.Second, "it is noted", func(s *store.Snapshot) bool {
					return rolloutOf(s).Generation == 2
				})
			},
			[]string{"2 passed-over rollout", "1 passed-over rollout"},
			[]string{"n1/1", "n1/1", "n1/1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.onOneNode(3, 3)
				s := w.server.tables.Snapshot()
				rec := &cluster.Rebalancing{
					ID: 8, Domain: cluster.DefaultDomain, State: cluster.RebalancingRunning,
					Parallel: 5,
				}
				for i, to := range []string{"n2", "n3"} {
					row, _ := s.Attempt(webTask(2-i), 1)
					rec.Moves = append(rec.Moves,
						cluster.RebalancingMove{
							Task: row.Task, Attempt: 1, UUID: row.Desired.UUID, From: "n1", To: to,
							State: cluster.MoveWaiting,
						})
				}
				c.spoil(w)
				passed := eventCounts(w.server.tables.Snapshot())["rebalance.passed"]
				w.put(p.Rebalancing(8), rec)
				left := 3
				if name == "it was scaled away" {
					left = 2
				}
				s = w.awaitEnded(8, left)
				if diff := cmp.Diff(c.want, moveStates(rebalancingOf(s, 8))); diff != "" {
					t.Errorf("moves (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(c.places, newestPlaces(s)); diff != "" {
					t.Errorf("places (-want +got):\n%s", diff)
				}
				want := 0
				for _, m := range rebalancingOf(s, 8).Moves {
					if m.State == cluster.MovePassed {
						want++
					}
				}
				if got := eventCounts(s)["rebalance.passed"] - passed; got != want {
					t.Errorf("events for %d that were skipped, want %d", got, want)
				}
			})
		})
	}
}

// A task whose place is gone after it has left goes to any node with room, and was never missing.
func TestRebalancingToANodeThatDies(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.onOneNode(3, 3)
		w.agents[1].kill() // the node still counts as ready for a while
		w.putRebalancing(1, 5, "2 n2")
		fewest := 3
		w.until(10*time.Minute, "it is passed over", trackLeast(w, &fewest, func(s *store.Snapshot) bool {
			return rebalancingOf(s, 1).State == cluster.RebalancingDone
		}))
		s := w.server.tables.Snapshot()
		if m := rebalancingOf(s, 1).Moves[0]; m.State != cluster.MovePassed || m.Why == "" || fewest < 3 {
			t.Errorf("got %+v; at least %d were healthy, want 3", m, fewest)
		}
		w.until(5*time.Minute, "three are healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 3 })
	})
}

// After the cancellation no further move begins, and open moves are completed.
func TestRebalancingIsCancelled(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.onOneNode(4, 2)
		w.putRebalancing(1, 1, "3 n2", "2 n2", "1 n2")
		w.until(time.Minute, "the first has left", func(s *store.Snapshot) bool {
			_, ok := s.Attempt(webTask(3), 2)
			return ok
		})
		r := *rebalancingOf(w.server.tables.Snapshot(), 1)
		r.Cancelled, r.CancelledBy = true, "uid:0"
		w.put(p.Rebalancing(1), &r)
		s := w.awaitEnded(1, 4)
		if diff := cmp.Diff([]string{"3 done", "2 passed-over cancelled", "1 passed-over cancelled"},
			moveStates(rebalancingOf(s, 1))); diff != "" {
			t.Errorf("moves (-want +got):\n%s", diff)
		}
		if r := rebalancingOf(s, 1); r.State != cluster.RebalancingCancelled ||
			eventCounts(s)["rebalance.passed"] != 0 {
			t.Errorf("it is %s, with events %v", r.State, eventCounts(s))
		}
	})
}

// The newest ended rebalancings are kept.
func TestOldRebalancingsGo(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.onOneNode(1, 2)
		for id := range uint64(13) {
			w.put(p.Rebalancing(id+1),
				&cluster.Rebalancing{ID: id + 1, Domain: cluster.DefaultDomain, State: cluster.RebalancingDone})
		}
		w.put(p.Rebalancing(14), &cluster.Rebalancing{ID: 14, Domain: "other", State: cluster.RebalancingDone})
		w.putRebalancing(15, 1, "0 n2")
		w.awaitEnded(15, 1)
		want := []uint64{5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
		var got []uint64
		w.until(10*time.Second, "old ones are gone", func(s *store.Snapshot) bool {
			got = nil
			for e := range s.Rebalancings() {
				got = append(got, e.Value.ID)
			}
			return cmp.Diff(want, got) == ""
		})
	})
}

// A leader that is killed around any of its commits, before or after the write, leaves records from which the next one
// continues: each task moves once, and none is missing meanwhile.
func TestLeaderKilledInARebalancing(t *testing.T) {
	for _, after := range []bool{false, true} {
		struck := 0
		for nth := 1; nth <= 24; nth++ {
			inWorld(t, func(t *testing.T, w *world) {
				w.onOneNode(3, 3)
				w.restartKilledAt(nth, after)
				w.until(10*time.Second, "the tables are there", func(s *store.Snapshot) bool {
					return healthy(s, 1) == 3
				})
				w.putRebalancing(1, 2, "2 n2", "1 n3")
				fewest := 3
				w.until(5*time.Minute, "it has ended", trackLeast(w, &fewest, func(s *store.Snapshot) bool {
					return rebalancingOf(s, 1).State == cluster.RebalancingDone && countRecords(s) == 3
				}))
				if w.meanwhile == nil {
					struck++
				}
				s := w.server.tables.Snapshot()
				if diff := cmp.Diff([]string{"n1/1", "n3/2", "n2/2"}, newestPlaces(s)); diff != "" || fewest < 3 {
					t.Errorf("killed at commit %d (after it: %v): at least %d healthy, places (-want +got):\n%s", nth,
						after, fewest, diff)
				}
				starts := 0
				for _, a := range w.agents {
					starts += len(a.effects)
				}
				if starts != 5 || rebalancingOf(s, 1).Counts().Done != 2 {
					t.Errorf("killed at commit %d (after it: %v): %d programs, want 5; %v", nth, after, starts,
						moveStates(rebalancingOf(s, 1)))
				}
			})
		}
		if struck < 12 {
			t.Errorf("only %d of 24 kills came in the middle", struck)
		}
	}
}

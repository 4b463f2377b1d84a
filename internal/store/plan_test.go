package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

func TestPlanIsDesiredUntilProjected(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		j, rev := w.job("j")
		l := store.NewPlanLog(w.writer, w.tables, 0)
		at, _, err := l.Append(t.Context(), store.PlanBatch{Owners: []cluster.PlanOwner{placed(j, rev, 1, "n1", "n2")}})
		if err != nil {
			t.Fatal(err)
		}
		s := w.at(at)
		task := cluster.JobTask("c", "j", 1, "s", 0)
		row, ok := s.Attempt(task, 1)
		if !ok || row.Desired == nil || row.DesiredRev != 0 || row.Plan != 1 || row.Node != "n1" || !row.Standing() {
			t.Fatalf("row: got %+v %v, want one of the plan", row, ok)
		}
		plan := onlyPlan(t, s)
		if _, ok, err := store.TrimUnit(p, s, plan); ok || err != nil {
			t.Fatalf("a plan that is not projected may be trimmed (%v)", err)
		}
		for i := range 2 {
			row, _ := s.Attempt(cluster.JobTask("c", "j", 1, "s", i), 1)
			w.project(row, true)
		}
		s = w.now()
		row, _ = s.Attempt(task, 1)
		if row.DesiredRev == 0 || row.Desired.Token != (cluster.Token{Incarnation: 7, Epoch: 1}) {
			t.Errorf("row: got %+v, want a projected one", row.Desired)
		}
		if r, err := w.engine.Read(t.Context(), p.Scheduled(task)); err != nil || string(r.Value) != "true" {
			t.Errorf("%s: got %q %v, want true", p.Scheduled(task), r.Value, err)
		}
		u, ok, err := store.TrimUnit(p, s, onlyPlan(t, s))
		if !ok || err != nil {
			t.Fatalf("a projected plan cannot be trimmed: %v", err)
		}
		s = w.commit([]bool{true}, u)
		if row, ok := s.Attempt(task, 1); !ok || row.PlanRev != 0 || row.Desired == nil {
			t.Errorf("row after the plan: got %+v %v", row, ok)
		}
		if s.LastPlan(0) != 1 {
			t.Errorf("last plan: got %d, want 1: a number is not used again", s.LastPlan(0))
		}
	})
}

func onlyPlan(t *testing.T, s *store.Snapshot) store.Entry[cluster.PlanRecord] {
	t.Helper()
	for e := range s.Plans(0) {
		return e
	}
	t.Fatal("there is no plan")
	return store.Entry[cluster.PlanRecord]{}
}

func (w *world) project(row *store.AttemptRow, want bool) {
	w.t.Helper()
	u, err := store.ProjectionUnit(p, row, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	w.commit([]bool{want}, u)
}

// T2: a late projection does not create a cancelled task again whose records are gone (P3.4).
func TestLateProjectionMakesNothingAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		j, rev := w.job("j")
		l := store.NewPlanLog(w.writer, w.tables, 0)
		at, _, err := l.Append(t.Context(), store.PlanBatch{Owners: []cluster.PlanOwner{placed(j, rev, 1, "n1")}})
		if err != nil {
			t.Fatal(err)
		}
		task := cluster.JobTask("c", "j", 1, "s", 0)
		late, _ := w.at(at).Attempt(task, 1)
		w.project(late, true)
		w.put(p.Outcome(task, 1), &cluster.Outcome{Task: task, Attempt: 1, State: cluster.StateCancelled})
		var u store.Unit
		u.Delete(p.Desired("n1", task))
		w.commit([]bool{true}, u)

		w.project(late, false) // the outcome refuses it, although the plan record still exists
		s := w.now()
		trim, ok, err := store.TrimUnit(p, s, onlyPlan(t, s))
		if !ok || err != nil {
			t.Fatalf("trim: %v %v", ok, err)
		}
		w.commit([]bool{true}, trim)
		u = store.Unit{}
		u.Delete(p.Outcome(task, 1))
		w.commit([]bool{true}, u)
		w.project(late, false) // the missing plan record refuses it
		if _, ok := w.now().Attempt(task, 1); ok {
			t.Error("the cancelled task came back")
		}
	})
}

// An attempt of a plan record that ended without a loss has an ended stop for its agent, although no desired record was
// written (P4.2). A lost one may still run.
func TestEndsByThePlan(t *testing.T) {
	for state, want := range map[cluster.State]bool{
		cluster.StateSucceeded: true, cluster.StateFailed: true, cluster.StateLost: false,
	} {
		inWorld(t, func(t *testing.T, w *world) {
			j, rev := w.job("j")
			l := store.NewPlanLog(w.writer, w.tables, 0)
			at, _, err := l.Append(t.Context(), store.PlanBatch{Owners: []cluster.PlanOwner{placed(j, rev, 1, "n1")}})
			if err != nil {
				t.Fatal(err)
			}
			task := cluster.JobTask("c", "j", 1, "s", 0)
			row, _ := w.at(at).Attempt(task, 1)
			id := row.Desired.UUID
			w.put(p.Observed("n1", task), &cluster.Observed{
				Task: task, Attempt: 1, UUID: id, Node: "n1", State: cluster.StateSucceeded,
			})
			w.put(p.Outcome(task, 1), &cluster.Outcome{Task: task, Attempt: 1, UUID: id, State: state})
			var u store.Unit
			u.Delete(p.Observed("n1", task))
			for range 2 { // with its status, and without it
				row, _ = w.now().Attempt(task, 1)
				if row.DesiredRev != 0 || row.Desired == nil || row.Desired.Ended() != want || row.Desired.UUID != id {
					t.Errorf("%s: the desired record is %+v", state, row.Desired)
				}
				w.commit([]bool{true}, u)
			}
			trim, ok, err := store.TrimUnit(p, w.now(), onlyPlan(t, w.now()))
			if !ok || err != nil {
				t.Fatalf("trim: %v %v", ok, err)
			}
			if row, _ = w.commit([]bool{true}, trim).Attempt(task, 1); row.Desired != nil || row.Outcome == nil {
				t.Errorf("%s: after the plan record: %+v", state, row)
			}
		})
	}
}

// A plan leaves out owners whose spec changed, and keeps the others under the same number (P3.3).
func TestPlanLeavesOutStaleOwners(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		fresh, freshRev := w.job("fresh")
		stale, staleRev := w.job("stale")
		w.job("stale") // written again
		l := store.NewPlanLog(w.writer, w.tables, 0)
		at, _, err := l.Append(t.Context(), store.PlanBatch{Owners: []cluster.PlanOwner{
			placed(stale, staleRev, 1, "n1"), placed(fresh, freshRev, 1, "n1"),
		}})
		if err != nil {
			t.Fatal(err)
		}
		s := w.at(at)
		if _, ok := s.Attempt(cluster.JobTask("c", "stale", 1, "s", 0), 1); ok {
			t.Error("a task of a stale owner was placed")
		}
		if _, ok := s.Attempt(cluster.JobTask("c", "fresh", 1, "s", 0), 1); !ok || s.LastPlan(0) != 1 {
			t.Errorf("the fresh owner's task was not placed by plan 1 (last plan %d)", s.LastPlan(0))
		}
	})
}

// A plan whose requirement does not hold any more leaves out all tasks, and its number is used by the next plan.
func TestPlanRequires(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		j, rev := w.job("j")
		l := store.NewPlanLog(w.writer, w.tables, 0)
		key := p.Domain("default")
		w.put(key, &cluster.Domain{Name: "default"})
		claim := w.revisionOf(key)
		batch := store.PlanBatch{
			Owners:   []cluster.PlanOwner{placed(j, rev, 1, "n1")},
			Requires: []store.Compare{{Key: key, Modified: claim}},
		}
		w.put(key, &cluster.Domain{Name: "default", Claim: &cluster.SchedulerClaim{Holder: "other"}})
		if at, _, err := l.Append(t.Context(), batch); at != 0 || err != nil {
			t.Fatalf("with an old claim: got revision %d and %v, want 0 and no error", at, err)
		}
		batch.Requires[0].Modified = w.revisionOf(key)
		at, _, err := l.Append(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		if plan := onlyPlan(t, w.at(at)); plan.Value.Seq != 1 || len(plan.Value.Owners) != 1 {
			t.Errorf("with the present claim: got %+v, want plan 1 with the job", plan.Value)
		}
	})
}

// revisionOf returns the revision of a record.
func (w *world) revisionOf(key string) uint64 {
	w.t.Helper()
	r, err := w.engine.Read(w.t.Context(), key)
	if err != nil {
		w.t.Fatal(err)
	}
	return r.Modified
}

// A gang is left out as a whole if one of its tasks can no longer be placed. The others of the record are placed.
func TestPlanLeavesOutWholeGangs(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		l := store.NewPlanLog(w.writer, w.tables, 0)
		gang, rev := w.job("gang")
		other, otherRev := w.job("other")
		whole := placed(gang, rev, 1, "n1")
		whole.Whole = true
		// its first attempt has no outcome
		whole.Tasks = append(whole.Tasks, cluster.Placed{Index: 1, Attempt: 2, UUID: "later", Node: "n1"})
		at, _, err := l.Append(t.Context(),
			store.PlanBatch{Owners: []cluster.PlanOwner{whole, placed(other, otherRev, 1, "n1")}})
		if err != nil {
			t.Fatal(err)
		}
		s := w.at(at)
		for _, want := range []struct {
			job    string
			placed bool
		}{{"gang", false}, {"other", true}} {
			if _, ok := s.Attempt(cluster.JobTask("c", want.job, 1, "s", 0), 1); ok != want.placed {
				t.Errorf("the first task of %s was placed: %v, want %v", want.job, ok, want.placed)
			}
		}
	})
}

// T4 (P3.7) and T3 (P3.6): attempt 2 is placed only where attempt 1 has an outcome, and not on a node where it still
// is.
func TestLaterAttemptNeedsTheOutcomeAndACleanNode(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		j, rev := w.job("j")
		task := cluster.JobTask("c", "j", 1, "s", 0)
		l := store.NewPlanLog(w.writer, w.tables, 0)
		second := func(node string) uint64 {
			t.Helper()
			at, _, err := l.Append(t.Context(), store.PlanBatch{Owners: []cluster.PlanOwner{placed(j, rev, 2, node)}})
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		w.put(p.Desired("n1", task), &cluster.Desired{Task: task, Attempt: 1, UUID: "u1", Node: "n1", Owner: j.Owner()})
		if at := second("n2"); at != 0 {
			t.Error("attempt 2 was placed before attempt 1 had an outcome")
		}
		w.put(p.Outcome(task, 1), &cluster.Outcome{Task: task, Attempt: 1, State: cluster.StateLost, Owner: j.Owner()})
		if at := second("n1"); at != 0 {
			t.Error("attempt 2 was placed where the record of attempt 1 still exists")
		}
		at := second("n2")
		if at == 0 {
			t.Fatal("attempt 2 was not placed")
		}
		if row, ok := w.at(at).Attempt(task, 2); !ok || row.Node != "n2" {
			t.Errorf("row: got %+v %v", row, ok)
		}
	})
}

// T6: a plan whose result was lost is settled before the next is written, whether it applied or not (P3.3).
func TestLostPlanIsSettledBeforeTheNext(t *testing.T) {
	for name, applies := range map[string]bool{"applied": true, "not applied": false} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				j, rev := w.job("j")
				lossy := w.engine.Open(memory.Hooks{
					Before: func(context.Context, []store.Group) error {
						if applies {
							return nil
						}
						return store.ErrUnknown
					},
					After: func(context.Context, []store.Group, store.Result) error { return store.ErrUnknown },
				})
				lost := store.NewPlanLog(store.NewWriter(lossy, p, w.fence, nil), w.tables, 0)
				plan := placed(j, rev, 1, "n1")
				if _, _, err := lost.Append(t.Context(),
					store.PlanBatch{Owners: []cluster.PlanOwner{plan}}); !errors.Is(err, store.ErrUnknown) {
					t.Fatalf("append: got %v, want ErrUnknown", err)
				}
				if _, _, err := lost.Append(t.Context(),
					store.PlanBatch{Owners: []cluster.PlanOwner{plan}}); err == nil {
					t.Fatal("the next plan was written before the last one was settled")
				}
				lost.Reconnect(w.writer)
				at, err := lost.Settle(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				_, ok := w.at(at).Attempt(cluster.JobTask("c", "j", 1, "s", 0), 1)
				if ok != applies {
					t.Errorf("after settling the task is placed: got %v, want %v", ok, applies)
				}
				// The late write of a plan that had not applied is refused forever: its number is taken.
				at, _, err = lost.Append(t.Context(),
					store.PlanBatch{Owners: []cluster.PlanOwner{placed(j, rev, 1, "n9")}})
				if err != nil {
					t.Fatal(err)
				}
				if s := w.at(at); s.LastPlan(0) != 2 {
					t.Errorf("last plan: got %d, want 2", s.LastPlan(0))
				}
			})
		})
	}
}

// T6, the late half: a lost plan arrives after its number was settled and later plans were written. The record that
// settled it is kept for the leader's epoch, and refuses the plan.
func TestLostPlanThatArrivesLate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		j, rev := w.job("j")
		var late []store.Group
		lossy := w.engine.Open(memory.Hooks{Before: func(_ context.Context, g []store.Group) error {
			late = g
			return store.ErrUnknown
		}})
		l := store.NewPlanLog(store.NewWriter(lossy, p, w.fence, nil), w.tables, 0)
		if _, _, err := l.Append(t.Context(),
			store.PlanBatch{Owners: []cluster.PlanOwner{placed(j, rev, 1, "n1")}}); !errors.Is(err, store.ErrUnknown) {
			t.Fatalf("append: got %v, want ErrUnknown", err)
		}
		l.Reconnect(w.writer)
		if _, err := l.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		at, _, err := l.Append(t.Context(), store.PlanBatch{Owners: []cluster.PlanOwner{placed(j, rev, 1, "n2")}})
		if err != nil {
			t.Fatal(err)
		}
		row, _ := w.at(at).Attempt(cluster.JobTask("c", "j", 1, "s", 0), 1)
		w.project(row, true)
		trim := func() {
			t.Helper()
			s := w.now()
			for e := range s.Plans(0) {
				if u, ok, err := store.TrimUnit(p, s, e); err != nil {
					t.Fatal(err)
				} else if ok {
					w.commit([]bool{true}, u)
				}
			}
		}
		trim()
		if res, err := w.engine.Commit(t.Context(), late); err != nil || res.Applied[0] {
			t.Errorf("the late plan: applied %v %v, want it refused", res.Applied, err)
		}
		w.lead(2) // the fence refuses it from now on
		trim()
		if _, err := w.engine.Read(t.Context(), p.Plan(1)); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the settled number under the next leader: got %v, want it trimmed", err)
		}
	})
}

// A plan record stays while a foreign record is in the place of a projection, since only the plan knows the right
// record.
func TestPlanOfAForeignRecordStays(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		j, rev := w.job("j")
		l := store.NewPlanLog(w.writer, w.tables, 0)
		if _, _, err := l.Append(t.Context(),
			store.PlanBatch{Owners: []cluster.PlanOwner{placed(j, rev, 1, "n1")}}); err != nil {
			t.Fatal(err)
		}
		task := cluster.JobTask("c", "j", 1, "s", 0)
		row, _ := w.now().Attempt(task, 1)
		w.project(row, true)
		w.put(p.Desired("n1", task), &store.Newest{})
		s := w.now()
		if _, ok, err := store.TrimUnit(p, s, onlyPlan(t, s)); ok || err != nil {
			t.Errorf("trim: got %v %v, want the plan to stay", ok, err)
		}
	})
}

// The log skips a number that another program took.
func TestTakenPlanNumberIsPassedOver(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		j, rev := w.job("j")
		l := store.NewPlanLog(w.writer, w.tables, 0)
		w.put(p.Plan(1), &store.Newest{})
		plan := store.PlanBatch{Owners: []cluster.PlanOwner{placed(j, rev, 1, "n1")}}
		if _, _, err := l.Append(t.Context(), plan); err == nil {
			t.Fatal("the plan was written over another's")
		}
		if at, _, err := l.Append(t.Context(), plan); err != nil || at == 0 {
			t.Errorf("the next try: got %d %v, want it written", at, err)
		}
	})
}

package store_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// A projected plan record and the records of its attempts are one transaction. The plan record can be trimmed at once,
// and the tables show the same attempt as after a late projection (P3.4).
func TestProjectedPlanIsOneTransaction(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		j, rev := w.job("j")
		l := store.NewPlanLog(w.writer, w.tables, 0)
		at, _, err := l.Append(t.Context(), store.PlanBatch{
			Owners: []cluster.PlanOwner{placed(j, rev, 1, "n1", "n2")}, Projected: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		s := w.at(at)
		plan := onlyPlan(t, s)
		for i, node := range []string{"n1", "n2"} {
			task := cluster.JobTask("c", "j", 1, "s", i)
			row, ok := s.Attempt(task, 1)
			if !ok || row.Node != node || row.PlanRev != plan.Modified || row.DesiredRev != plan.Modified ||
				row.IsUnreadable() || row.Desired.Token != plan.Value.Token || row.Desired.Plan != plan.Value.Seq ||
				!row.Desired.Placed.Equal(plan.Value.At) {
				t.Errorf("row: got %+v with %+v, want one of the plan record and of its own", row, row.Desired)
			}
			if r, err := w.engine.Read(t.Context(), p.Scheduled(task)); err != nil || string(r.Value) != "true" ||
				r.Modified != plan.Modified {
				t.Errorf("%s: got %q at %d, %v", p.Scheduled(task), r.Value, r.Modified, err)
			}
		}
		trim, ok, err := store.TrimUnit(p, s, plan)
		if !ok || err != nil {
			t.Fatalf("the plan record cannot be trimmed: %v", err)
		}
		s = w.commit([]bool{true}, trim)
		if row, ok := s.Attempt(cluster.JobTask("c", "j", 1, "s", 0), 1); !ok || row.Desired == nil {
			t.Errorf("row after the plan record: got %+v %v", row, ok)
		}
	})
}

// A foreign record at the key of an attempt refuses only that attempt, and is not overwritten.
func TestProjectedPlanOverwritesNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		j, rev := w.job("j")
		first, second := cluster.JobTask("c", "j", 1, "s", 0), cluster.JobTask("c", "j", 1, "s", 1)
		w.put(p.Desired("n1", first), &cluster.Desired{Task: first, Node: "n1", UUID: "foreign"})
		l := store.NewPlanLog(w.writer, w.tables, 0)
		at, _, err := l.Append(t.Context(), store.PlanBatch{
			Owners: []cluster.PlanOwner{placed(j, rev, 1, "n1", "n2")}, Projected: true,
		})
		if err != nil || at == 0 {
			t.Fatalf("append: %d %v", at, err)
		}
		s := w.at(at)
		if row, _ := s.Attempt(first, 1); row != nil && row.PlanRev != 0 {
			t.Errorf("the task with the foreign record was placed: %+v", row)
		}
		if row, ok := s.Attempt(second, 1); !ok || row.DesiredRev == 0 || row.PlanRev == 0 {
			t.Errorf("the other task was not placed: %+v", row)
		}
	})
}

// A projected plan record whose result was lost is settled with its records: all of them were written, or none (T6). A
// late arrival writes none of them, as the empty record refuses it.
func TestLostProjectedPlanIsSettledWhole(t *testing.T) {
	for name, applies := range map[string]bool{"applied": true, "not applied": false} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				j, rev := w.job("j")
				var late []store.Group
				lossy := w.engine.Open(memory.Hooks{
					Before: func(_ context.Context, groups []store.Group) error {
						if applies {
							return nil
						}
						late = groups
						return store.ErrUnknown
					},
					After: func(context.Context, []store.Group, store.Result) error { return store.ErrUnknown },
				})
				lost := store.NewPlanLog(store.NewWriter(lossy, p, w.fence, nil), w.tables, 0)
				if _, _, err := lost.Append(t.Context(), store.PlanBatch{
					Owners: []cluster.PlanOwner{placed(j, rev, 1, "n1")}, Projected: true,
				}); !errors.Is(err, store.ErrUnknown) {
					t.Fatalf("append: got %v, want ErrUnknown", err)
				}
				lost.Reconnect(w.writer)
				at, err := lost.Settle(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if late != nil {
					if r, err := w.engine.Commit(t.Context(), late); err != nil || r.Applied[0] {
						t.Errorf("the late plan record: %+v %v, want it refused", r, err)
					}
				}
				task := cluster.JobTask("c", "j", 1, "s", 0)
				row, ok := w.at(at).Attempt(task, 1)
				_, err = w.engine.Read(t.Context(), p.Desired("n1", task))
				if ok != applies || ok && (row.DesiredRev == 0 || row.PlanRev == 0) || (err == nil) != applies {
					t.Errorf("row: got %+v %v, record: %v, want both: %t", row, ok, err, applies)
				}
			})
		})
	}
}

// Each record fits into the limits of the engine with the tightest ones, whatever attempts it holds.
func TestRoomOfPlans(t *testing.T) {
	for _, projected := range []bool{false, true} {
		for _, attempt := range []int{1, 2} {
			inWorld(t, func(t *testing.T, w *world) {
				engine := memory.New(memory.Options{Consul: true})
				l := store.NewPlanLog(store.NewWriter(engine, p, nil, nil), w.tables, 0)
				room := l.Room(projected)
				n := min(room.Tasks, (room.Operations-1)/max(1, room.OperationsOf(attempt)))
				nodes := make([]string, n)
				for i := range nodes {
					nodes[i] = "a-node-with-a-rather-long-name.example.com"
				}
				j := &cluster.Job{
					Cluster: "c", Name: "j", Lifespan: cluster.Lifespan{Generation: 1},
					Steps: []cluster.Step{{Name: "s"}},
				}
				if _, _, err := l.Append(t.Context(), store.PlanBatch{
					Owners: []cluster.PlanOwner{placed(j, 0, attempt, nodes...)}, Projected: projected,
				}); err != nil {
					t.Errorf("%d attempts %d, projected %t: %v", n, attempt, projected, err)
				}
				if n < 20 {
					t.Errorf("projected %t: there is room for %d attempts %d only", projected, n, attempt)
				}
			})
		}
	}
}

// BenchmarkPlans writes plan records of 39 attempts, as many as a projected one holds on Consul, with the records of
// the attempts in the same transaction and without.
func BenchmarkPlans(b *testing.B) {
	const tasks = 39
	for _, projected := range []bool{false, true} {
		b.Run(fmt.Sprintf("projected=%t", projected), func(b *testing.B) {
			writes, bytes := 0, 0
			base := memory.New(memory.Options{Consul: true})
			count := func(_ context.Context, groups []store.Group, _ store.Result) error {
				for _, g := range groups {
					for _, op := range g.Ops {
						writes++
						bytes += len(op.Key) + len(op.Value)
					}
				}
				return nil
			}
			engine := base.Open(memory.Hooks{After: count})
			tables := store.NewTables(store.TablesConfig{Engine: engine, Logger: slog.New(slog.DiscardHandler)})
			l := store.NewPlanLog(store.NewWriter(engine, p, nil, nil), tables, 0)
			nodes := make([]string, tasks)
			for i := range nodes {
				nodes[i] = fmt.Sprintf("n%d", i)
			}
			placements := 0
			for b.Loop() {
				placements += tasks
				j := &cluster.Job{
					Cluster: "c", Name: fmt.Sprint("j", placements), Lifespan: cluster.Lifespan{Generation: 1},
					Steps: []cluster.Step{{Name: "s"}},
				}
				if _, _, err := l.Append(b.Context(), store.PlanBatch{
					Owners: []cluster.PlanOwner{placed(j, 0, 1, nodes...)}, Projected: projected,
				}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(writes)/float64(placements), "writes/placement")
			b.ReportMetric(float64(bytes)/float64(placements), "bytes/placement")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(placements), "ns/placement")
		})
	}
}

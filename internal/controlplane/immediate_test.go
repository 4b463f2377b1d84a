package controlplane_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/memory"
)

// projectImmediately makes the default domain one with the immediate projection.
func (w *world) projectImmediately() {
	w.t.Helper()
	w.put(p.Domain(cluster.DefaultDomain), &cluster.Domain{
		Name: cluster.DefaultDomain, Projection: cluster.ProjectionImmediate,
	})
}

// transactions counts what the server writes. Its methods may be called concurrently.
type transactions struct {
	t *testing.T

	mu sync.Mutex
	// placed are the attempts in plan records, together those that were projected in the same transaction, and alone
	// those that were projected later. marks are those with state/<task>, too.
	placed, together, alone, marks int
	// writes are the operations, without those of beats and events, groups their transactions, and bytes the values.
	writes, groups, bytes int
	// exists are the keys that the server wrote and did not delete.
	exists map[string]bool
}

// follow counts the applied groups of the server's next run.
func (c *transactions) follow(w *world) {
	c.t, c.exists = w.t, map[string]bool{}
	w.faulty = w.engine.Open(memory.Hooks{After: func(_ context.Context, groups []store.Group, r store.Result) error {
		for i, g := range groups {
			if r.Applied[i] {
				c.count(g)
			}
		}
		return nil
	}})
}

func (c *transactions) count(g store.Group) {
	c.mu.Lock()
	defer c.mu.Unlock()
	placed, projected, marks, writes := 0, 0, 0, 0
	for _, op := range g.Ops {
		key, ours := strings.CutPrefix(op.Key, string(p))
		noun, rest, _ := strings.Cut(key, "/")
		if !ours || noun == "event" || noun == "leader" {
			continue
		}
		if op.Delete && !c.exists[op.Key] {
			continue // there is nothing to delete
		}
		c.exists[op.Key] = !op.Delete
		writes++
		c.bytes += len(op.Value)
		switch {
		case noun == "plan" && !op.Delete:
			record, err := store.Decode[cluster.PlanRecord](op.Value)
			if err != nil {
				c.t.Error(err)
				continue
			}
			for _, o := range record.Owners {
				placed += len(o.Tasks)
			}
		case noun == "state" && strings.Contains(rest, "/") && !op.Delete:
			if d, err := store.Decode[cluster.Desired](op.Value); err == nil && d.Stop == nil {
				projected++
			}
		case noun == "state" && !op.Delete:
			marks++
		}
	}
	c.placed += placed
	c.marks += marks
	if placed > 0 {
		c.together += projected
	} else {
		c.alone += projected
	}
	if c.writes += writes; writes > 0 {
		c.groups++
	}
}

// In a domain that asks for it, the records of each attempt appear in the transaction of its plan record, also those of
// tasks that end within a second. The plan record goes at once, and nothing is left in the end.
func TestImmediateProjection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, seen := &world{t: t, engine: memory.New(memory.Options{}), began: time.Now()}, &transactions{}
		seen.follow(w)
		w.start()
		w.projectImmediately()
		w.node("n1", func(a *agent) {
			a.fails = func(id cluster.TaskID, attempt int) bool {
				return attempt == 1 && id == cluster.JobTask("c", "batch", 1, "work", 3)
			}
		})
		w.node("n2")
		w.definition(1, 100)
		w.service(3, 1, 1)
		w.job(8, 1)
		w.until(controlplane.ProjectAfter/2, "the service is healthy, and nothing is left of the job",
			func(s *store.Snapshot) bool {
				return healthy(s, 1) == 3 && succeeded(s) == 8 && countRecords(s) == 3 && isSettled(s)
			})
		seen.mu.Lock()
		defer seen.mu.Unlock()
		if seen.placed < 11 || seen.together != seen.placed || seen.marks != seen.placed || seen.alone != 0 {
			t.Errorf("%d attempts were placed, %d projected with their plan records, %d marked, %d projected later",
				seen.placed, seen.together, seen.marks, seen.alone)
		}
		for _, a := range w.agents {
			a.kill()
		}
		w.server.stop()
	})
}

// Attempts that were placed before the domain asked for the immediate projection are projected when it does.
func TestProjectionBecomesImmediate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.node("n1")
		w.definition(1, 100)
		w.service(3, 1, 1)
		w.until(10*time.Second, "3 healthy", func(s *store.Snapshot) bool { return healthy(s, 1) == 3 })
		if isSettled(w.server.tables.Snapshot()) {
			t.Error("the attempts are projected already: this test shows nothing")
		}
		w.projectImmediately()
		w.until(time.Second, "all are projected", isSettled)
	})
}

// A leader dies with the answer about a projected plan record: the next one finds either all of its records or none,
// and each task runs once.
func TestLeaderDiesWithAnImmediateProjection(t *testing.T) {
	for name, applies := range map[string]bool{"written": true, "not written": false} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.projectImmediately()
				w.definition(1, 100)
				w.job(8, 0)
				w.server.stop()
				lost := make(chan struct{})
				var once sync.Once
				isPlan := func(groups []store.Group) bool {
					for _, g := range groups {
						for _, op := range g.Ops {
							if strings.HasPrefix(op.Key, string(p)+"plan/") && strings.Contains(string(op.Value), `"tasks"`) {
								return true
							}
						}
					}
					return false
				}
				die := func(ctx context.Context, groups []store.Group) error {
					if !isPlan(groups) {
						return nil
					}
					once.Do(func() { close(lost) })
					<-ctx.Done()
					return store.ErrUnknown
				}
				hooks := memory.Hooks{Before: die}
				if applies {
					hooks = memory.Hooks{After: func(ctx context.Context, groups []store.Group, _ store.Result) error {
						return die(ctx, groups)
					}}
				}
				w.faulty = w.engine.Open(hooks)
				w.start()
				a := w.node("n1")
				<-lost
				w.server.stop()
				w.faulty = nil
				w.start()
				w.until(time.Minute, "the job has run", func(s *store.Snapshot) bool {
					return succeeded(s) == 8 && countRecords(s) == 0
				})
				if len(a.effects) != 8 {
					t.Errorf("%d attempts ran, want 8", len(a.effects))
				}
			})
		})
	}
}

// TestWritesOfProjections counts what the placement and the life of a task cost in the store, without events. The guide
// of domains names the numbers.
func TestWritesOfProjections(t *testing.T) {
	const tasks = 40
	for _, test := range []struct {
		name      string
		immediate bool
		most      float64 // writes of a task
	}{{"delayed", false, 6}, {"immediate", true, 12}} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, seen := &world{t: t, engine: memory.New(memory.Options{}), began: time.Now()}, &transactions{}
				seen.follow(w)
				w.start()
				if test.immediate {
					w.projectImmediately()
				}
				w.definition(1, 10)
				for _, name := range []string{"n1", "n2", "n3", "n4"} {
					w.node(name)
				}
				w.until(10*time.Second, "the nodes are ready", func(s *store.Snapshot) bool {
					return node(s, "n4").State == cluster.NodeReady
				})
				seen.mu.Lock()
				seen.writes, seen.groups, seen.bytes = 0, 0, 0
				seen.mu.Unlock()
				w.job(tasks, 0)
				w.until(10*time.Minute, "the job has run", func(s *store.Snapshot) bool {
					return succeeded(s) == tasks && countRecords(s) == 0
				})
				for _, a := range w.agents {
					a.kill()
				}
				w.server.stop()
				each := float64(seen.writes) / tasks
				t.Logf("%.2f writes and %d bytes for each task", each, seen.bytes/tasks)
				if each > test.most {
					t.Errorf("%.2f writes for each task, want at most %.0f", each, test.most)
				}
			})
		})
	}
}

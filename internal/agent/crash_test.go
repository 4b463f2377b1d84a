package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/agent/attempt"
	"github.com/berthd/berth/internal/agent/state"
	"github.com/berthd/berth/internal/agent/task"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// crasher kills the agent at the nth point. Points are the beginning and the end of each call that has an effect
// outside of the agent.
type crasher struct {
	mu    sync.Mutex
	w     *world
	left  int
	at    string // where the crash happened
	armed bool
}

func (c *crasher) point(name string) {
	c.mu.Lock()
	strike := c.armed && c.left == 0
	if c.armed {
		c.left--
	}
	if strike {
		c.armed, c.at = false, name
	}
	c.mu.Unlock()
	if strike {
		c.w.agent.parts.Store.Abandon()
		c.w.cancel()
	}
}

// crashAt runs the script with a crash at the nth point, continues with another agent each time, and reports whether
// the crash happened.
func crashAt(t *testing.T, n int, script func(w *world, alive func())) (crashed bool) {
	t.Run(fmt.Sprintf("point %d", n), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			c := &crasher{w: w, left: n, armed: true}
			w.executor.crash, w.server.crash = c.point, c.point
			w.start()
			alive := func() {
				synctest.Wait()
				c.mu.Lock()
				dead := !c.armed && !crashed
				c.mu.Unlock()
				if dead {
					crashed = true
					if err := w.ended(); err != nil && !errors.Is(err, state.ErrClosed) {
						t.Error(err)
					}
					w.start()
				}
			}
			script(w, alive)
			alive()
			w.stop()
			if t.Failed() {
				t.Logf("crashed %s", c.at)
			}
		})
	})
	return crashed
}

// A batch attempt whose agent dies at any moment starts its program at most once, and ends (T16, P4.4).
func TestCrashAtEveryStepOfBatch(t *testing.T) {
	for n := 0; ; n++ {
		struck := crashAt(t, n, func(w *world, alive func()) {
			w.executor.programs[""] = program{Runs: 20 * time.Second, Late: time.Second}
			def := definition("work", "first", "app")
			def.Containers[0].Init = true
			d := w.batch("b1", def)
			for range 30 {
				w.pass(2 * time.Second)
				alive()
			}
			w.want("b1", cluster.StateSucceeded, "")
			w.wantEffects("first b1", "app b1")
			w.stopTask(d, true)
			alive()
			w.pass(15 * time.Second)
			alive()
			if o := w.want("b1", cluster.StateSucceeded, ""); !o.Gone || len(w.executor.runs) != 0 {
				w.t.Errorf("gone %v with %d containers left", o.Gone, len(w.executor.runs))
			}
		})
		if !struck {
			if n < 20 {
				t.Errorf("the story has %d points only", n)
			}
			return
		}
	}
}

// A service restarts by its policy after the death of its agent at any moment; two of its programs never run together.
func TestCrashAtEveryStepOfService(t *testing.T) {
	for n := 0; ; n++ {
		struck := crashAt(t, n, func(w *world, alive func()) {
			w.executor.programs["app"] = program{Runs: 5 * time.Second, Code: 1}
			d := w.service("s1", definition("web", "app"))
			for range 10 {
				w.pass(2 * time.Second)
				alive()
				if n := w.executor.running(); n > 1 {
					w.t.Errorf("%d programs of one task run", n)
				}
			}
			w.executor.mu.Lock()
			if n := len(w.executor.effects); n < 2 || n > 4 {
				w.t.Errorf("started %d times in 20 s", n)
			}
			w.executor.mu.Unlock()
			w.stopTask(d, false)
			alive()
			w.pass(10 * time.Second)
			alive()
			w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted)
			if n := w.executor.running(); n != 0 {
				w.t.Errorf("%d programs run after the stop", n)
			}
		})
		if !struck {
			return
		}
	}
}

// An executor that lost its record of a start never gets a second start.
func TestCrashBetweenLaunchAndRecord(t *testing.T) {
	for name, lie := range map[string]func(b *testExecutor, id executor.ID){
		"the container is not known": func(b *testExecutor, id executor.ID) { delete(b.runs, id) },
		"its state is not known": func(b *testExecutor, id executor.ID) {
			b.runs[id].state = executor.StateUnknown
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.executor.programs["app"] = program{Late: 10 * time.Second}
				w.batch("b1", definition("work", "app"))
				w.wantEffects("app b1")
				w.stop() // Start has not returned
				w.executor.mu.Lock()
				lie(w.executor, "b1-0-1")
				w.executor.mu.Unlock()
				w.start()
				w.pass(time.Minute)
				w.want("b1", cluster.StateFailed, cluster.ReasonUnknownExit)
				w.wantEffects("app b1")
			})
		})
	}
}

func TestNoExecutorWorks(t *testing.T) {
	inWorld(t, func(w *world) {
		w.stop()
		w.attach = func() executor.Executor { return unavailable{w.executor} }
		w.start()
		w.service("s1", definition("web", "app"))
		w.pass(50 * time.Second)
		w.want("s1", cluster.StatePreparing, "")
		w.pass(20 * time.Second)
		o := w.want("s1", cluster.StateRejected, cluster.ReasonNoExecutor)
		want := "no executor works on the node: dial /run/x.sock: " + executor.ErrUnavailable.Error()
		if o.Message != want {
			t.Errorf("message %q, want %q", o.Message, want)
		}
	})
}

// unavailable is an executor that does not work on the machine.
type unavailable struct{ executor.Executor }

func (unavailable) Probe(context.Context) (cluster.ExecutorFact, error) {
	return cluster.ExecutorFact{}, fmt.Errorf("dial /run/x.sock: %w", executor.ErrUnavailable)
}

// The answer of a start is lost: the agent asks again with the same id, which starts nothing twice.
func TestLostAnswerOfStart(t *testing.T) {
	inWorld(t, func(w *world) {
		w.executor.programs["app"] = program{Runs: time.Minute, Lost: true}
		w.batch("b1", definition("work", "app"))
		w.pass(30 * time.Second)
		w.want("b1", cluster.StateRunning, "")
		w.pass(time.Minute)
		w.want("b1", cluster.StateSucceeded, "")
		w.wantEffects("app b1")
	})
}

// An end without an acknowledgement is reported again: only the reply to a report makes it durable (P4.6).
func TestEndIsReportedUntilItIsAcknowledged(t *testing.T) {
	inWorld(t, func(w *world) {
		w.executor.programs["app"] = program{Runs: 10 * time.Second}
		w.batch("b1", definition("work", "app"))
		w.server.cut(false)
		w.pass(time.Minute)
		w.restart()
		w.server.mu.Lock()
		before := len(w.server.reports)
		w.server.mu.Unlock()
		w.server.cut(true)
		w.pass(time.Minute)
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		for _, r := range w.server.reports[before:] {
			for i := range r.Tasks {
				if r.Tasks[i].UUID == "b1" && r.Tasks[i].State == cluster.StateSucceeded {
					return
				}
			}
		}
		t.Error("no report contains the end")
	})
}

// The agent's state is lost, and the store goes back. The tasks continue, and are adopted when the server sends them
// again.
func TestLostStateStopsNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.executor.programs["work"] = program{Runs: time.Minute}
		w.executor.programs["side"] = program{Runs: time.Second}
		def := definition("job", "init", "work", "side")
		def.Containers[0].Init = true
		def.Containers[2].Optional = true
		w.executor.programs["init"] = program{Runs: time.Second}
		w.batch("b1", def)
		d := w.service("s1", definition("web", "app"))
		w.pass(10 * time.Second)
		w.stop()
		if err := os.Remove(filepath.Join(w.dir, "agent.db")); err != nil {
			t.Fatal(err)
		}
		w.server.recoveries++
		w.start()
		w.pass(10 * time.Second)
		w.want("s1", cluster.StateRunning, "")
		w.want("b1", cluster.StateRunning, "")
		w.pass(2 * time.Minute)
		w.want("b1", cluster.StateSucceeded, "")
		w.wantEffects("init b1", "app s1", "work b1", "side b1")
		w.stopTask(d, true)
		if o := w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted); !o.Gone {
			t.Error("not gone")
		}
	})
}

// registered returns the newest registration's report of an attempt, and the number of such registrations.
func (s *server) registered(uuid string) (o cluster.Observed, registrations int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.regs[len(s.regs)-1].Tasks {
		if t.UUID == uuid {
			o = t
		}
	}
	return o, len(s.regs)
}

// The agent's state is lost, and the executor does not list its containers. A full report without the running tasks
// would end them in the store. So the agent sends none before the executor has answered.
func TestLostStateIsNotReportedBeforeTheExecutorAnswers(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service("s1", definition("web", "app"))
		w.pass(10 * time.Second)
		w.stop()
		if err := os.Remove(filepath.Join(w.dir, "agent.db")); err != nil {
			t.Fatal(err)
		}
		w.executor.setMute(true)
		w.start()
		w.pass(time.Minute)
		if _, n := w.server.registered("s1"); n != 1 {
			t.Errorf("the node registered %d times, want only once, before its state was lost", n)
		}
		w.executor.setMute(false)
		w.pass(10 * time.Second)
		if o, n := w.server.registered("s1"); n != 2 || o.State != cluster.StateRunning {
			t.Errorf("after %d registrations s1 is %q, want it running after 2", n, o.State)
		}
		w.want("s1", cluster.StateRunning, "")
		w.wantEffects("app s1")
	})
}

// An agent with its state registers after a short wait for an executor. Another registration reports containers without
// a record that the executor lists later.
func TestStraysThatAreFoundLateAreReported(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service("s1", definition("web", "app"))
		w.pass(10 * time.Second)
		w.stop()
		w.executor.mu.Lock()
		for _, r := range w.executor.runs {
			stray := *r
			stray.spec.ID = attempt.RunID("x1", 0, 1)
			stray.spec.Labels = maps.Clone(r.spec.Labels)
			stray.spec.Labels[task.LabelUUID], stray.spec.Labels[task.LabelTask] = "x1", "default.other.1.0"
			w.executor.runs[stray.spec.ID] = &stray
			break
		}
		w.executor.mu.Unlock()
		w.executor.setMute(true)
		w.start()
		w.pass(20 * time.Second)
		if o, n := w.server.registered("x1"); n != 2 || o.State != "" {
			t.Errorf("after %d registrations x1 is %q, want 2 that do not know it", n, o.State)
		}
		w.executor.setMute(false)
		w.pass(20 * time.Second)
		if o, n := w.server.registered("x1"); n != 3 || o.State != cluster.StateRunning {
			t.Errorf("after %d registrations x1 is %q, want it running after 3", n, o.State)
		}
		w.want("s1", cluster.StateRunning, "")
	})
}

// The agent's disk rejects all writes: running tasks continue and can be stopped, and no task starts.
func TestStateThatCannotBeWritten(t *testing.T) {
	inWorld(t, func(w *world) {
		d := w.service("s1", definition("web", "app"))
		w.agent.parts.Store.Abandon()
		w.service("s2", definition("more", "app"))
		w.pass(time.Minute)
		if o := w.want("s2", cluster.StateStarting, ""); !strings.Contains(o.Message, "cannot be written") {
			t.Errorf("message %q", o.Message)
		}
		w.want("s1", cluster.StateRunning, "")
		w.stopTask(d, false)
		w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted)
		w.wantEffects("app s1")
	})
}

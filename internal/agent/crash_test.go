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
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// crasher kills the agent at the nth of the points that it is told: at the beginning and at the end of each
// call that has an effect outside of the agent.
type crasher struct {
	mu    sync.Mutex
	w     *world
	left  int
	at    string // where it struck
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
		c.w.agent.store.Abandon()
		c.w.cancel()
	}
}

// crashAt runs the story with a crash at the nth point, goes on with another agent each time, and reports
// whether the crash happened.
func crashAt(t *testing.T, n int, story func(w *world, alive func())) (struck bool) {
	t.Run(fmt.Sprintf("point %d", n), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			c := &crasher{w: w, left: n, armed: true}
			w.box.crash, w.server.crash = c.point, c.point
			w.start()
			alive := func() {
				synctest.Wait()
				c.mu.Lock()
				dead := !c.armed && !struck
				c.mu.Unlock()
				if dead {
					struck = true
					if err := w.ended(); err != nil && !errors.Is(err, state.ErrClosed) {
						t.Error(err)
					}
					w.start()
				}
			}
			story(w, alive)
			alive()
			w.stop()
			if t.Failed() {
				t.Logf("crashed %s", c.at)
			}
		})
	})
	return struck
}

// A batch attempt whose agent dies at any moment starts its program once at most, and ends (T16, P4.4).
func TestCrashAtEveryStepOfBatch(t *testing.T) {
	for n := 0; ; n++ {
		struck := crashAt(t, n, func(w *world, alive func()) {
			w.box.programs[""] = program{Runs: 20 * time.Second, Late: time.Second}
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
			if o := w.want("b1", cluster.StateSucceeded, ""); !o.Gone || len(w.box.runs) != 0 {
				w.t.Errorf("gone %v with %d containers left", o.Gone, len(w.box.runs))
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

// A service is restarted by its policy whatever moment its agent dies at; never do two programs of it run.
func TestCrashAtEveryStepOfService(t *testing.T) {
	for n := 0; ; n++ {
		struck := crashAt(t, n, func(w *world, alive func()) {
			w.box.programs["app"] = program{Runs: 5 * time.Second, Code: 1}
			d := w.service("s1", definition("web", "app"))
			for range 10 {
				w.pass(2 * time.Second)
				alive()
				if n := w.box.running(); n > 1 {
					w.t.Errorf("%d programs of one task run", n)
				}
			}
			w.box.mu.Lock()
			if n := len(w.box.effects); n < 2 || n > 4 {
				w.t.Errorf("started %d times in 20 s", n)
			}
			w.box.mu.Unlock()
			w.stopTask(d, false)
			alive()
			w.pass(10 * time.Second)
			alive()
			w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted)
			if n := w.box.running(); n != 0 {
				w.t.Errorf("%d programs run after the stop", n)
			}
		})
		if !struck {
			return
		}
	}
}

// An executor that lost its memory of a start, too, is never told to start again.
func TestCrashBetweenLaunchAndRecord(t *testing.T) {
	for name, lie := range map[string]func(b *box, id executor.ID){
		"the container is not known": func(b *box, id executor.ID) { delete(b.runs, id) },
		"its state is not known":     func(b *box, id executor.ID) { b.runs[id].state = executor.StateUnknown },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.box.programs["app"] = program{Late: 10 * time.Second}
				w.batch("b1", definition("work", "app"))
				w.wantEffects("app b1")
				w.stop() // Start has not returned
				w.box.mu.Lock()
				lie(w.box, "b1-0-1")
				w.box.mu.Unlock()
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
		w.attach = func() executor.Executor { return deaf{w.box} }
		w.start()
		w.service("s1", definition("web", "app"))
		w.pass(50 * time.Second)
		w.want("s1", cluster.StatePreparing, "")
		w.pass(20 * time.Second)
		w.want("s1", cluster.StateRejected, cluster.ReasonNoExecutor)
	})
}

// deaf is an executor that does not work on the machine.
type deaf struct{ executor.Executor }

func (deaf) Probe(context.Context) (cluster.ExecutorFact, error) {
	return cluster.ExecutorFact{}, executor.ErrUnavailable
}

// The answer of a start is lost: it is asked for again under the same id, which starts nothing twice.
func TestLostAnswerOfStart(t *testing.T) {
	inWorld(t, func(w *world) {
		w.box.programs["app"] = program{Runs: time.Minute, Lost: true}
		w.batch("b1", definition("work", "app"))
		w.pass(30 * time.Second)
		w.want("b1", cluster.StateRunning, "")
		w.pass(time.Minute)
		w.want("b1", cluster.StateSucceeded, "")
		w.wantEffects("app b1")
	})
}

// An end that was never acknowledged is told again in a report, which is what makes it durable (P4.6).
func TestEndIsReportedUntilItIsAcknowledged(t *testing.T) {
	inWorld(t, func(w *world) {
		w.box.programs["app"] = program{Runs: 10 * time.Second}
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
		t.Error("no report tells the end")
	})
}

// The agent's state is lost, and the store goes back. The tasks run on, and are taken up when the server sends them
// again.
func TestLostStateStopsNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.box.programs["work"] = program{Runs: time.Minute}
		w.box.programs["side"] = program{Runs: time.Second}
		def := definition("job", "init", "work", "side")
		def.Containers[0].Init = true
		def.Containers[2].Optional = true
		w.box.programs["init"] = program{Runs: time.Second}
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

// told returns what the newest registration said of an attempt, and how many there were.
func (s *server) told(uuid string) (o cluster.Observed, registrations int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.regs[len(s.regs)-1].Tasks {
		if t.UUID == uuid {
			o = t
		}
	}
	return o, len(s.regs)
}

// The agent's state is lost, and the executor does not tell what it holds. A full report without what runs would end it
// in the store while it goes on, so there is none before the executor has told.
func TestLostStateIsNotReportedBeforeTheExecutorTells(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service("s1", definition("web", "app"))
		w.pass(10 * time.Second)
		w.stop()
		if err := os.Remove(filepath.Join(w.dir, "agent.db")); err != nil {
			t.Fatal(err)
		}
		w.box.hush(true)
		w.start()
		w.pass(time.Minute)
		if _, n := w.server.told("s1"); n != 1 {
			t.Errorf("the node registered %d times, want only once, before its state was lost", n)
		}
		w.box.hush(false)
		w.pass(10 * time.Second)
		if o, n := w.server.told("s1"); n != 2 || o.State != cluster.StateRunning {
			t.Errorf("after %d registrations s1 is %q, want it running after 2", n, o.State)
		}
		w.want("s1", cluster.StateRunning, "")
		w.wantEffects("app s1")
	})
}

// An agent that has its state registers without waiting long for an executor. What that tells of later, and no record
// does, is told of by another registration.
func TestStraysThatAreFoundLateAreToldOf(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service("s1", definition("web", "app"))
		w.pass(10 * time.Second)
		w.stop()
		w.box.mu.Lock()
		for _, r := range w.box.runs {
			stray := *r
			stray.spec.ID = attempt.RunID("x1", 0, 1)
			stray.spec.Labels = maps.Clone(r.spec.Labels)
			stray.spec.Labels[labelUUID], stray.spec.Labels[labelTask] = "x1", "default.other.1.0"
			w.box.runs[stray.spec.ID] = &stray
			break
		}
		w.box.mu.Unlock()
		w.box.hush(true)
		w.start()
		w.pass(20 * time.Second)
		if o, n := w.server.told("x1"); n != 2 || o.State != "" {
			t.Errorf("after %d registrations x1 is %q, want 2 that do not know it", n, o.State)
		}
		w.box.hush(false)
		w.pass(20 * time.Second)
		if o, n := w.server.told("x1"); n != 3 || o.State != cluster.StateRunning {
			t.Errorf("after %d registrations x1 is %q, want it running after 3", n, o.State)
		}
		w.want("s1", cluster.StateRunning, "")
	})
}

// The agent's disk takes nothing any more: what runs goes on and can be stopped, nothing new is started.
func TestStateThatCannotBeWritten(t *testing.T) {
	inWorld(t, func(w *world) {
		d := w.service("s1", definition("web", "app"))
		w.agent.store.Abandon()
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

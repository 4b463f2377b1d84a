package agent

import (
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

func (w *world) signals(t *testing.T) (all []syscall.Signal, at []time.Duration) {
	t.Helper()
	w.executor.mu.Lock()
	defer w.executor.mu.Unlock()
	for _, r := range w.executor.runs {
		all = append(all, r.signals...)
		for i := range r.at {
			at = append(at, r.at[i].Sub(r.at[0]))
		}
	}
	return all, at
}

func TestStopIsTermGraceKill(t *testing.T) {
	inWorld(t, func(w *world) {
		w.executor.programs["app"] = program{IgnoresTerm: true}
		def := definition("web", "app")
		def.Grace = cluster.Duration(3 * time.Second)
		d := w.service("s1", def)
		w.stopTask(d, false)
		w.want("s1", cluster.StateStopping, "")
		w.pass(4 * time.Second)
		w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted)
		got, at := w.signals(t)
		if want := []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}; !slices.Equal(got, want) ||
			at[1] != 3*time.Second {
			t.Errorf("signals %v at %v, want %v with 3 s between", got, at, want)
		}
	})
}

func TestUnkillable(t *testing.T) {
	inWorld(t, func(w *world) {
		w.executor.programs["app"] = program{SurvivesKill: true}
		d := w.service("s1", definition("web", "app"))
		w.stopTask(d, false)
		w.pass(2 * time.Minute)
		w.want("s1", cluster.StateStopping, "")
		w.pass(15 * time.Second)
		w.want("s1", cluster.StateStopping, cluster.ReasonUnkillable)
		w.restart()
		w.want("s1", cluster.StateStopping, cluster.ReasonUnkillable)
		w.executor.mu.Lock()
		for _, r := range w.executor.runs {
			r.program.SurvivesKill = false
		}
		w.executor.mu.Unlock()
		w.pass(3 * time.Minute)
		w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted)
	})
}

func TestStopWhilePreparing(t *testing.T) {
	inWorld(t, func(w *world) {
		w.executor.programs["app"] = program{Pull: time.Hour}
		d := w.service("s1", definition("web", "app"))
		o := w.want("s1", cluster.StatePreparing, "")
		if o.Message != "container app: pulling" {
			t.Errorf("message %q", o.Message)
		}
		w.stopTask(d, true)
		if o := w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted); !o.Gone {
			t.Error("not gone")
		}
		w.wantEffects()
	})
}

func TestStopAtTheBarrier(t *testing.T) {
	inWorld(t, func(w *world) {
		w.server.answer = func(*server, transport.Report) (transport.ReportReply, error) {
			return transport.ReportReply{}, errDown
		}
		d := w.batch("b1", definition("work", "app"))
		w.stopTask(d, false)
		w.server.mu.Lock()
		w.server.answer = nil
		w.server.mu.Unlock()
		w.pass(10 * time.Second)
		w.want("b1", cluster.StateCancelled, cluster.ReasonDeleted)
		w.wantEffects()
	})
}

func TestStopOfUnknownAttempt(t *testing.T) {
	inWorld(t, func(w *world) {
		def := definition("web", "app")
		d := w.desired("s1", def, cluster.KindService)
		w.stopTask(d, true)
		if o := w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted); !o.Gone {
			t.Error("not gone")
		}
	})
}

func TestStopEndsWhileServerIsAway(t *testing.T) {
	inWorld(t, func(w *world) {
		w.executor.programs["app"] = program{IgnoresTerm: true}
		d := w.service("s1", definition("web", "app"))
		w.stopTask(d, false)
		w.server.cut(false)
		w.pass(time.Minute)
		if n := w.executor.running(); n != 0 {
			t.Errorf("%d programs run", n)
		}
		w.want("s1", cluster.StateStopping, "")
		w.stop()
		w.start()
		w.pass(time.Minute)
		w.server.cut(true)
		w.pass(time.Minute)
		w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted)
		w.executor.mu.Lock()
		kept := len(w.executor.runs)
		w.executor.mu.Unlock()
		if kept != 1 {
			t.Errorf("%d containers are kept before the outcome is durable, want 1 (P4.6)", kept)
		}
		w.stopTask(d, true)
		w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted)
		w.server.say(transport.Message{Forget: &transport.Forget{Task: d.Task, UUID: "s1"}})
		w.pass(time.Second)
		if w.agent.attempts.find(d.Task, "s1") != nil {
			t.Error("the attempt is not forgotten")
		}
	})
}

func TestForgetNeverStops(t *testing.T) {
	inWorld(t, func(w *world) {
		d := w.service("s1", definition("web", "app"))
		w.server.say(transport.Message{Forget: &transport.Forget{Task: d.Task, UUID: "s1"}})
		w.pass(time.Minute)
		w.want("s1", cluster.StateRunning, "")
		if w.executor.running() != 1 {
			t.Error("a running task was stopped by a forget")
		}
	})
}

// TestWantedAgainWhileForgotten: a server makes the agent forget an attempt, and then finds a status of it. The server
// gets a report that nothing is left, whenever its message arrives.
func TestWantedAgainWhileForgotten(t *testing.T) {
	for late := range 4 {
		inWorld(t, func(w *world) {
			d := w.service("s1", definition("web", "app"))
			w.stopTask(d, false)
			w.pass(time.Minute)
			w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted)
			d.Stop = &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonEnded, Ended: true}
			w.rev++
			w.server.say(transport.Message{Forget: &transport.Forget{Task: d.Task, UUID: "s1"}})
			for range late {
				runtime.Gosched()
			}
			w.server.say(transport.Message{Assignment: &transport.Assignment{Desired: d, Revision: w.rev}})
			w.pass(time.Minute)
			w.server.mu.Lock()
			if o := w.server.seen["s1"]; !o.State.Terminal() || !o.Gone {
				t.Errorf("not reported gone, or asked %d turns late; story %v", late, w.server.states["s1"])
			}
			w.server.mu.Unlock()
			w.server.say(transport.Message{Forget: &transport.Forget{Task: d.Task, UUID: "s1"}})
			w.pass(time.Second)
			if w.agent.attempts.find(d.Task, "s1") != nil {
				t.Error("the attempt is not forgotten")
			}
		})
	}
}

func TestTimeLimit(t *testing.T) {
	inWorld(t, func(w *world) {
		def := definition("work", "app")
		d := w.desired("b1", def, cluster.KindJob)
		d.TimeLimit = cluster.Duration(time.Minute)
		w.assign(d, def)
		w.pass(30 * time.Second)
		w.restart() // the limit belongs to the attempt, not to the agent
		w.pass(29 * time.Second)
		w.want("b1", cluster.StateRunning, "")
		w.pass(2 * time.Second)
		w.want("b1", cluster.StateFailed, cluster.ReasonTimeLimit)
	})
}

func TestBatchThatEndedWellKeepsItsResult(t *testing.T) {
	inWorld(t, func(w *world) {
		w.executor.programs["app"] = program{Runs: time.Second}
		d := w.batch("b1", definition("work", "app"))
		w.server.cut(false)
		w.pass(time.Minute)
		d.Stop = &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonCancelled}
		w.server.cut(true)
		w.sendAgain(d)
		w.pass(time.Minute)
		w.want("b1", cluster.StateSucceeded, "")
	})
}

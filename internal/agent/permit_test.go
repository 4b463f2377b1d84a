package agent

import (
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// requestStop sends a voluntary stop, with a permit unless that is empty.
func (w *world) requestStop(d cluster.Desired, permit string) {
	d.Stop = &cluster.Stop{
		Class: cluster.StopVoluntary, Reason: cluster.ReasonRollout, Message: "version 2 is out",
		Permit: permit,
	}
	w.sendAgain(d)
}

// wantAsk compares the newest reported ask.
func (w *world) wantAsk(uuid, want string) {
	w.t.Helper()
	o := w.want(uuid, cluster.StateRunning, "")
	if o.Ask != want {
		w.t.Errorf("it asks %q, want %q", o.Ask, want)
	}
}

// inPermitWorld runs a test with a running service, in session 1 with a server that grants permits.
func inPermitWorld(t *testing.T, test func(w *world, d cluster.Desired)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.without = 0
		w.start()
		defer w.stop()
		test(w, w.service("s1", definition("web", "app")))
	})
}

func TestVoluntaryStopWaitsForItsPermit(t *testing.T) {
	inPermitWorld(t, func(w *world, d cluster.Desired) {
		w.server.mu.Lock()
		before := len(w.server.reports)
		w.server.mu.Unlock()
		w.requestStop(d, "")
		w.wantAsk("s1", "1.1")
		w.server.mu.Lock()
		if n := len(w.server.reports) - before; n != 1 {
			t.Errorf("the ask took %d reports within 50 ms, want 1", n)
		}
		w.server.mu.Unlock()
		w.pass(time.Hour)
		w.wantAsk("s1", "1.1")
	})
	inPermitWorld(t, func(w *world, d cluster.Desired) {
		w.requestStop(d, "")
		w.pass(29 * time.Second)
		w.requestStop(d, "1.1")
		o := w.want("s1", cluster.StateCancelled, cluster.ReasonRollout)
		if o.Ask != "1.1" || o.Message != "version 2 is out" {
			t.Errorf("it asks %q at its end, with the message %q", o.Ask, o.Message)
		}
		if got, _ := w.signals(t); !slices.Equal(got, []syscall.Signal{syscall.SIGTERM}) {
			t.Errorf("signals %v, want TERM", got)
		}
	})
}

func TestLateGrantIsVoid(t *testing.T) {
	inPermitWorld(t, func(w *world, d cluster.Desired) {
		w.requestStop(d, "")
		w.pass(31 * time.Second)
		w.requestStop(d, "1.1")
		w.wantAsk("s1", "1.2")
		w.pass(time.Minute)
		w.wantAsk("s1", "1.2")
		w.requestStop(d, "1.2") // 60 s later
		w.wantAsk("s1", "1.3")
		w.requestStop(d, "1.3")
		w.want("s1", cluster.StateCancelled, cluster.ReasonRollout)
	})
}

// The 30 seconds begin when the ask is first sent, however long it is under way.
func TestGrantOfADelayedRequest(t *testing.T) {
	inPermitWorld(t, func(w *world, d cluster.Desired) {
		w.server.mu.Lock()
		w.server.answer = func(*server, transport.Report) (transport.ReportReply, error) {
			return transport.ReportReply{}, errDown
		}
		w.server.mu.Unlock()
		w.requestStop(d, "")
		w.pass(31 * time.Second)
		w.server.mu.Lock()
		w.server.answer = nil
		w.server.mu.Unlock()
		w.pass(10 * time.Second)
		w.wantAsk("s1", "1.1")
		w.requestStop(d, "1.1")
		w.wantAsk("s1", "1.2")
	})
}

// In a session with another server the agent asks again, and a grant of the session before is void.
func TestNewSessionRequestsAgain(t *testing.T) {
	inPermitWorld(t, func(w *world, d cluster.Desired) {
		w.requestStop(d, "")
		w.wantAsk("s1", "1.1")
		w.server.mu.Lock()
		w.server.live = 0 // the session is over
		w.server.mu.Unlock()
		w.server.cut(true)
		w.pass(10 * time.Second)
		w.wantAsk("s1", "2.2")
		w.requestStop(d, "1.1")
		w.wantAsk("s1", "2.2")
		w.requestStop(d, "2.2")
		w.want("s1", cluster.StateCancelled, cluster.ReasonRollout)
	})
}

// The agent dies after the permit was committed and before its use was durable: the task continues, and the agent asks
// again.
func TestDeathBetweenGrantAndUse(t *testing.T) {
	inPermitWorld(t, func(w *world, d cluster.Desired) {
		w.requestStop(d, "")
		w.agent.parts.Store.Abandon()
		w.requestStop(d, "1.1")
		w.pass(time.Minute)
		if w.executor.running() != 1 {
			t.Error("stopped by a permit whose use is not durable")
		}
		w.cancel()
		<-w.done
		w.start()
		w.pass(time.Second)
		w.wantAsk("s1", "2.2") // the stop was durable, its request belongs to the session before
		if w.executor.running() != 1 {
			t.Error("stopped by a permit of the session before")
		}
	})
}

// The agent dies between the durable use and TERM: the next one completes the stop, without a server, however late.
func TestDeathBetweenUseAndTerm(t *testing.T) {
	inPermitWorld(t, func(w *world, d cluster.Desired) {
		w.requestStop(d, "")
		died := false
		w.executor.crash = func(point string) {
			if point == "before signal" && !died {
				died = true
				w.executor.down = true
				w.cancel()
			}
		}
		w.rev++
		d.Stop = &cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonRollout, Permit: "1.1"}
		w.server.say(transport.Message{Assignment: &transport.Assignment{Desired: d, Revision: w.rev}})
		<-w.done
		if !died || w.executor.running() != 1 {
			t.Fatalf("died %v with %d programs running, want a death before TERM", died, w.executor.running())
		}
		w.executor.down = false
		w.server.cut(false)
		w.pass(time.Hour)
		w.start()
		w.pass(time.Minute)
		if n := w.executor.running(); n != 0 {
			t.Errorf("%d programs run an hour after the permit was used", n)
		}
		w.server.cut(true)
		w.pass(time.Minute)
		if o := w.want("s1", cluster.StateCancelled, cluster.ReasonRollout); o.Ask != "1.1" {
			t.Errorf("it asks %q after it was stopped by 1.1", o.Ask)
		}
	})
}

// Servers without permits expect every stop immediately, and a mandatory stop never waits.
func TestStopsThatNeedNoPermit(t *testing.T) {
	inWorld(t, func(w *world) {
		w.requestStop(w.service("s1", definition("web", "app")), "")
		w.want("s1", cluster.StateCancelled, cluster.ReasonRollout)
	})
	inPermitWorld(t, func(w *world, d cluster.Desired) {
		w.requestStop(d, "")
		w.wantAsk("s1", "1.1")
		w.stopTask(d, false)
		w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted)
	})
}

// An attempt with an outcome that continues elsewhere also stops by a permit, and is then cleared.
func TestMovedAttemptNeedsAPermit(t *testing.T) {
	inPermitWorld(t, func(w *world, d cluster.Desired) {
		d.Stop = &cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonDrain, Ended: true}
		w.sendAgain(d)
		w.wantAsk("s1", "1.1")
		w.restart()
		w.pass(time.Second)
		w.wantAsk("s1", "2.2")
		d.Stop = &cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonDrain, Ended: true, Permit: "2.2"}
		w.sendAgain(d)
		w.pass(time.Second)
		if o := w.want("s1", cluster.StateCancelled, cluster.ReasonDrain); !o.Gone {
			t.Error("not gone")
		}
	})
}

// A task with a voluntary stop is still supervised: it restarts when it ends, and keeps its ask.
func TestTaskWithAVoluntaryStopIsRestarted(t *testing.T) {
	inPermitWorld(t, func(w *world, d cluster.Desired) {
		w.requestStop(d, "")
		w.executor.mu.Lock()
		run := w.executor.runs["s1-0-1"]
		w.executor.mu.Unlock()
		w.executor.end(run, cluster.Exit{Code: 1})
		w.pass(5 * time.Second)
		w.wantAsk("s1", "1.1")
		w.wantEffects("app s1", "app s1")
	})
}

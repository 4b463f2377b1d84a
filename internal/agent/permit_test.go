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

// wish tells the agent a voluntary stop, with a permit unless that is empty.
func (w *world) wish(d cluster.Desired, permit string) {
	d.Stop = &cluster.Stop{
		Class: cluster.StopVoluntary, Reason: cluster.ReasonRollout, Message: "version 2 is out",
		Permit: permit,
	}
	w.tell(d)
}

// asked compares the newest ask that was reported.
func (w *world) asked(uuid, want string) {
	w.t.Helper()
	o := w.want(uuid, cluster.StateRunning, "")
	if o.Ask != want {
		w.t.Errorf("it asks %q, want %q", o.Ask, want)
	}
}

// inPermitWorld runs a test with a service that runs, in session 1 with a server that grants permits.
func inPermitWorld(t *testing.T, test func(w *world, d cluster.Desired)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.server.wire = transport.WireVersion
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
		w.wish(d, "")
		w.asked("s1", "1.1")
		w.server.mu.Lock()
		if n := len(w.server.reports) - before; n != 1 {
			t.Errorf("the ask took %d reports within 50 ms, want 1", n)
		}
		w.server.mu.Unlock()
		w.pass(time.Hour)
		w.asked("s1", "1.1")
	})
	inPermitWorld(t, func(w *world, d cluster.Desired) {
		w.wish(d, "")
		w.pass(29 * time.Second)
		w.wish(d, "1.1")
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
		w.wish(d, "")
		w.pass(31 * time.Second)
		w.wish(d, "1.1")
		w.asked("s1", "1.2")
		w.pass(time.Minute)
		w.asked("s1", "1.2")
		w.wish(d, "1.2") // 60 s later
		w.asked("s1", "1.3")
		w.wish(d, "1.3")
		w.want("s1", cluster.StateCancelled, cluster.ReasonRollout)
	})
}

// The 30 seconds begin when the ask is sent first, however long it is on its way.
func TestGrantOfAnAskThatWasLongOnItsWay(t *testing.T) {
	inPermitWorld(t, func(w *world, d cluster.Desired) {
		w.server.mu.Lock()
		w.server.answer = func(*server, transport.Report) (transport.ReportReply, error) {
			return transport.ReportReply{}, errDown
		}
		w.server.mu.Unlock()
		w.wish(d, "")
		w.pass(31 * time.Second)
		w.server.mu.Lock()
		w.server.answer = nil
		w.server.mu.Unlock()
		w.pass(10 * time.Second)
		w.asked("s1", "1.1")
		w.wish(d, "1.1")
		w.asked("s1", "1.2")
	})
}

// An agent that comes to another server asks anew, and what was granted in the session before is void.
func TestNewSessionAsksAnew(t *testing.T) {
	inPermitWorld(t, func(w *world, d cluster.Desired) {
		w.wish(d, "")
		w.asked("s1", "1.1")
		w.server.mu.Lock()
		w.server.live = 0 // the session is over
		w.server.mu.Unlock()
		w.server.cut(true)
		w.pass(10 * time.Second)
		w.asked("s1", "2.2")
		w.wish(d, "1.1")
		w.asked("s1", "2.2")
		w.wish(d, "2.2")
		w.want("s1", cluster.StateCancelled, cluster.ReasonRollout)
	})
}

// The agent dies after the permit was committed and before its use was durable: the task goes on, and it asks anew.
func TestDeathBetweenGrantAndUse(t *testing.T) {
	inPermitWorld(t, func(w *world, d cluster.Desired) {
		w.wish(d, "")
		w.agent.store.Abandon()
		w.wish(d, "1.1")
		w.pass(time.Minute)
		if w.box.running() != 1 {
			t.Error("stopped by a permit whose use is not durable")
		}
		w.cancel()
		<-w.done
		w.start()
		w.pass(time.Second)
		w.asked("s1", "2.2") // the wish was durable, its ask is of the session before
		if w.box.running() != 1 {
			t.Error("stopped by a permit of the session before")
		}
	})
}

// The agent dies between the durable use and TERM: the next one completes it, without a server, however late.
func TestDeathBetweenUseAndTerm(t *testing.T) {
	inPermitWorld(t, func(w *world, d cluster.Desired) {
		w.wish(d, "")
		died := false
		w.box.crash = func(point string) {
			if point == "before signal" && !died {
				died = true
				w.box.down = true
				w.cancel()
			}
		}
		w.rev++
		d.Stop = &cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonRollout, Permit: "1.1"}
		w.server.say(transport.Message{Assignment: &transport.Assignment{Desired: d, Revision: w.rev}})
		<-w.done
		if !died || w.box.running() != 1 {
			t.Fatalf("died %v with %d programs running, want a death before TERM", died, w.box.running())
		}
		w.box.down = false
		w.server.cut(false)
		w.pass(time.Hour)
		w.start()
		w.pass(time.Minute)
		if n := w.box.running(); n != 0 {
			t.Errorf("%d programs run an hour after the permit was used", n)
		}
		w.server.cut(true)
		w.pass(time.Minute)
		if o := w.want("s1", cluster.StateCancelled, cluster.ReasonRollout); o.Ask != "1.1" {
			t.Errorf("it asks %q after it was stopped by 1.1", o.Ask)
		}
	})
}

// Servers of before permits want every stop at once, and a mandatory stop never waits.
func TestStopsThatNeedNoPermit(t *testing.T) {
	inWorld(t, func(w *world) {
		w.wish(w.service("s1", definition("web", "app")), "")
		w.want("s1", cluster.StateCancelled, cluster.ReasonRollout)
	})
	inPermitWorld(t, func(w *world, d cluster.Desired) {
		w.wish(d, "")
		w.asked("s1", "1.1")
		w.stopTask(d, false)
		w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted)
	})
}

// An attempt that has its outcome and goes on elsewhere is stopped by a permit too, and then cleared.
func TestMovedAttemptNeedsAPermit(t *testing.T) {
	inPermitWorld(t, func(w *world, d cluster.Desired) {
		d.Stop = &cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonDrain, Ended: true}
		w.tell(d)
		w.asked("s1", "1.1")
		w.restart()
		w.pass(time.Second)
		w.asked("s1", "2.2")
		d.Stop = &cluster.Stop{Class: cluster.StopVoluntary, Reason: cluster.ReasonDrain, Ended: true, Permit: "2.2"}
		w.tell(d)
		w.pass(time.Second)
		if o := w.want("s1", cluster.StateCancelled, cluster.ReasonDrain); !o.Gone {
			t.Error("not gone")
		}
	})
}

// A task with a wish is looked after: it is restarted when it ends, and goes on asking the same.
func TestTaskWithAWishIsRestarted(t *testing.T) {
	inPermitWorld(t, func(w *world, d cluster.Desired) {
		w.wish(d, "")
		w.box.mu.Lock()
		run := w.box.runs["s1-0-1"]
		w.box.mu.Unlock()
		w.box.end(run, cluster.Exit{Code: 1})
		w.pass(5 * time.Second)
		w.asked("s1", "1.1")
		w.wantEffects("app s1", "app s1")
	})
}

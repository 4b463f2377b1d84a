package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// The agent connects to a server that lags and sends an older state (T12, P6.6).
func TestLaggingServerStopsNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		def := definition("web", "app")
		old := w.service("s1", def)
		fresh := old
		fresh.Token.Epoch = 5
		w.sendAgain(fresh)
		other := w.desired("s2", def, cluster.KindService)
		other.Task, other.Token.Epoch = "default.web.1.1", 5
		w.sendAgain(other)

		stop := old
		stop.Stop = &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonDeleted}
		w.sendAgain(stop) // a newer revision, but from an older leader
		w.server.say(transport.Message{Assignment: &transport.Assignment{Desired: stop, Revision: 1}})
		w.server.say(transport.Message{Synced: true}) // and s2 is missing from all messages
		w.pass(time.Minute)
		w.want("s1", cluster.StateRunning, "")
		w.want("s2", cluster.StateRunning, "")

		w.restart() // the token of each task is persistent
		w.sendAgain(stop)
		w.want("s1", cluster.StateRunning, "")
		stop.Token.Epoch = 6
		w.sendAgain(stop)
		w.want("s1", cluster.StateCancelled, cluster.ReasonDeleted)
		w.want("s2", cluster.StateRunning, "")
	})
}

func TestLateAndRepeatedMessages(t *testing.T) {
	inWorld(t, func(w *world) {
		def := definition("work", "app")
		d := w.batch("b2", def)
		d.Attempt = 2
		for _, as := range []transport.Assignment{
			{Desired: d, Revision: 1},
			{Desired: d, Revision: 1},
			{Desired: d, Revision: 7},
			{Desired: d, Revision: 3},
		} {
			w.server.say(transport.Message{Assignment: &as}, transport.Message{Definition: def})
		}
		w.pass(time.Second)
		w.wantEffects("app b2")
	})
}

func TestRefusedAssignments(t *testing.T) {
	for name, change := range map[string]func(*cluster.Desired){
		"an earlier owner":            func(d *cluster.Desired) { d.Token.Generation = 0 },
		"another node":                func(d *cluster.Desired) { d.Node = "n2" },
		"a UUID that is a path":       func(d *cluster.Desired) { d.UUID = "../../etc" },
		"no UUID":                     func(d *cluster.Desired) { d.UUID = "" },
		"an earlier attempt, arrived": func(d *cluster.Desired) { d.Task, d.Attempt = "default.web.1.main.7", 1 },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				def := definition("work", "app")
				later := w.desired("later", def, cluster.KindJob)
				later.Task, later.Attempt = "default.web.1.main.7", 2
				w.assign(later, def)
				d := w.desired("b1", def, cluster.KindJob)
				change(&d)
				w.assign(d, def)
				w.pass(time.Second)
				w.wantEffects("app later")
			})
		})
	}
}

// TestAttemptsFromBeforeARecovery moves the store back to a time with attempts that have since ended here, and the
// store sends them again (P1.7, P4.4). The agent does not begin unknown attempts, and its own continue.
func TestAttemptsFromBeforeARecovery(t *testing.T) {
	inWorld(t, func(w *world) {
		def := definition("work", "app")
		known := w.service("s1", def)
		ended := w.desired("b1", def, cluster.KindJob)
		after := w.desired("b2", def, cluster.KindJob)
		after.Task, after.Token.Incarnation = "default.web.1.main.1", 2
		w.assign(after, def)
		w.assign(ended, def)
		foreign := w.desired("b3", def, cluster.KindJob)
		// from a control plane without incarnations
		foreign.Task, foreign.Token.Incarnation = "default.web.1.main.2", 0
		w.assign(foreign, def)
		w.pass(time.Second)
		w.wantEffects("app s1", "app b2", "app b3")

		w.restart() // the incarnation is persistent
		w.assign(ended, def)
		w.sendAgain(known)
		w.pass(time.Second)
		w.wantEffects("app s1", "app b2", "app b3")
		w.want("s1", cluster.StateRunning, "")

		w.stopTask(ended, true) // a stop begins nothing, and is answered
		w.want("b1", cluster.StateCancelled, cluster.ReasonDeleted)
		w.wantEffects("app s1", "app b2", "app b3")
	})
}

func TestDefinitionThatNeverCame(t *testing.T) {
	inWorld(t, func(w *world) {
		def := definition("web", "app")
		w.sendAgain(w.desired("s1", def, cluster.KindService))
		w.want("s1", cluster.StateRejected, cluster.ReasonNoDefinition)
	})
}

func TestSessionConflictRegistersAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.service("s1", definition("web", "app"))
		w.server.mu.Lock()
		w.server.sessions += 3 // another agent registered under its name
		w.server.live = w.server.sessions
		w.server.mu.Unlock()
		w.pass(time.Minute)
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		last := w.server.regs[len(w.server.regs)-1]
		if w.server.live != 5 || last.Previous != 4 || len(last.Tasks) != 1 ||
			last.Tasks[0].State != cluster.StateRunning {
			t.Errorf("session %d, registration %+v", w.server.live, last)
		}
	})
}

// A version that was deleted and written again has another content.
func TestDefinitionWrittenAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		def := definition("web", "app")
		d := w.service("s1", def)
		w.pass(time.Second)
		w.stopTask(d, true)
		again := definition("web", "app")
		again.Containers[0].Command = []string{"another"}
		w.service("s2", again)
		w.pass(time.Second)
		if got := w.specOf("s2-0-1").Container.Command; len(got) != 1 || got[0] != "another" {
			t.Errorf("the program is %q, want that of the version that was written again", got)
		}
	})
}

func TestResumption(t *testing.T) {
	inWorld(t, func(w *world) {
		def := definition("web", "app")
		w.service("s1", def)
		w.pass(time.Second)
		w.restart()
		w.pass(time.Second)
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		last := w.server.have[len(w.server.have)-1]
		if last.Have["s1"] != (transport.Known{Revision: w.rev, Incarnation: 1, Epoch: 1}) {
			t.Errorf("resumes with %+v, want s1 at %d", last, w.rev)
		}
		reg := w.server.regs[len(w.server.regs)-1]
		if reg.Token != (cluster.Token{Generation: 1, Incarnation: 1, Epoch: 1}) || reg.Previous != 1 {
			t.Errorf("registers with %+v", reg)
		}
		if n := len(w.executor.effects); n != 1 {
			t.Errorf("started %d times", n)
		}
	})
}

func TestHeartbeats(t *testing.T) {
	inWorld(t, func(w *world) {
		w.pass(time.Minute)
		w.server.mu.Lock()
		if n := len(w.server.reports); n < 12 || n > 16 {
			t.Errorf("%d reports in a minute with a heartbeat of 5 s, want about 14", n)
		}
		before := len(w.server.reports)
		w.server.answer = func(*server, transport.Report) (transport.ReportReply, error) {
			return transport.ReportReply{Heartbeat: cluster.Duration(30 * time.Second)}, nil
		}
		w.server.mu.Unlock()
		w.pass(2 * time.Minute)
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		if n := len(w.server.reports) - before; n < 4 || n > 6 {
			t.Errorf("%d reports in two minutes with a heartbeat of 30 s, want about 5", n)
		}
	})
}

// Simultaneous changes share one report, and without changes only heartbeats are sent.
func TestReportsAreBatched(t *testing.T) {
	inWorld(t, func(w *world) {
		def := definition("web", "app")
		var messages []transport.Message
		messages = append(messages, transport.Message{Definition: def})
		for i := range 300 {
			d := w.desired(fmt.Sprint("s", i), def, cluster.KindService)
			d.Task = cluster.ServiceTask("default", "web", 1, i)
			messages = append(messages, transport.Message{Assignment: &transport.Assignment{Desired: d, Revision: 1}})
		}
		w.server.say(messages...)
		w.pass(500 * time.Millisecond)
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		entries := 0
		for _, r := range w.server.reports {
			entries += len(r.Tasks)
		}
		if n := len(w.server.reports); n > 25 || len(w.server.seen) != 300 || entries > 900 {
			t.Errorf("%d reports with %d entries about %d tasks", n, entries, len(w.server.seen))
		}
		t.Logf("%d reports with %d entries", len(w.server.reports), entries)
	})
}

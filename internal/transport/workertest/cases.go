package workertest

import (
	"errors"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/suite"
	"github.com/berthd/berth/internal/transport"
)

// register checks the first registration, and that a report follows within the heartbeat.
func register(b *bench) {
	r := b.registered(1)
	if r.Node != b.worker.Node || r.Previous != 0 || r.Wire < transport.WireMin || r.WireMin > transport.WireVersion ||
		len(r.Tasks) != 0 || len(r.Facts.Executors) == 0 || r.Facts.CPU == 0 || r.Facts.Memory == 0 {
		b.Errorf("the first registration is %+v", r)
	}
	suite.Eventually(b, Limit, func() error {
		if b.reports() < 2 {
			return errors.New("the worker sends no heartbeats")
		}
		return nil
	})
	b.noFaults()
}

// barrier withholds the answer to the start barrier: the program must not begin before it (P4.3).
func barrier(b *bench) {
	b.hold()
	uuid := b.program("exit 0")
	b.reported(uuid, cluster.StateStarting)
	suite.Pause(b, absence)
	b.ran(0)
	b.release()
	if o := b.reported(uuid, cluster.StateSucceeded); o.Started.IsZero() || o.Finished.IsZero() {
		b.Errorf("the end is reported without its times: %+v", o)
	}
	b.ran(1)
	b.finish(uuid)
	b.noFaults()
}

// barrierRefused refuses the barrier for good: the program never begins.
func barrierRefused(b *bench) {
	b.set(func() {
		b.refuse = &transport.Refused{Reason: cluster.ReasonBarrier, Message: "the task was ended before its start"}
	})
	uuid := b.program("exit 0")
	if o := b.reported(uuid, cluster.StateRejected); o.Reason != cluster.ReasonBarrier {
		b.Errorf("got reason %s, want %s", o.Reason, cluster.ReasonBarrier)
	}
	suite.Pause(b, absence)
	b.ran(0)
	b.finish(uuid)
}

// barrierRetried refuses the barrier for now: the worker asks again, and begins after the answer.
func barrierRetried(b *bench) {
	b.set(func() {
		b.refuse = &transport.Refused{Reason: cluster.ReasonRecovery, Message: "not yet", Retry: true}
	})
	uuid := b.program("exit 0")
	b.reported(uuid, cluster.StateStarting)
	suite.Pause(b, absence)
	b.ran(0)
	b.set(func() { b.refuse = nil })
	b.reported(uuid, cluster.StateSucceeded)
	b.ran(1)
}

// exitCode checks the report of a failure.
func exitCode(b *bench) {
	uuid := b.program("echo words of the program; exit 3")
	o := b.reported(uuid, cluster.StateFailed)
	if o.Reason != cluster.ReasonExit || len(o.Containers) != 1 || o.Containers[0].Exit == nil ||
		o.Containers[0].Exit.Code != 3 || o.LogTail != "words of the program\n" {
		b.Errorf("got %+v, want reason exit, code 3 and the output", o)
	}
	b.ran(1)
	b.finish(uuid)
}

// mandatoryStop ends a running program.
func mandatoryStop(b *bench) {
	uuid := b.program(b.until())
	b.reported(uuid, cluster.StateRunning)
	b.runsOn(uuid)
	b.stop(uuid, cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonDeleted, Message: "it was deleted"})
	o := b.reported(uuid, cluster.StateCancelled)
	if o.Reason != cluster.ReasonDeleted || o.Message != "it was deleted" {
		b.Errorf("got %s, %q, want the reason and the message of the stop", o.Reason, o.Message)
	}
	b.silent()
	b.finish(uuid)
}

// silent fails the case if a program of until still writes.
func (b *bench) silent() {
	b.Helper()
	before := b.lines("tick")
	suite.Pause(b, absence)
	if n := b.lines("tick"); n != before {
		b.Errorf("the program writes although its end was reported")
	}
}

// stopBeforeStart stops an attempt at its barrier: the program never begins.
func stopBeforeStart(b *bench) {
	b.set(func() {
		b.refuse = &transport.Refused{Reason: cluster.ReasonRecovery, Message: "not yet", Retry: true}
	})
	uuid := b.program("exit 0")
	b.reported(uuid, cluster.StateStarting)
	b.stop(uuid, cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonCancelled})
	b.reported(uuid, cluster.StateCancelled)
	b.set(func() { b.refuse = nil })
	suite.Pause(b, absence)
	b.ran(0)
	b.finish(uuid)
}

// olderMessages sends a stop by an earlier leader, which changes nothing, and repeats the assignments before and after
// a stop: the attempt does not begin again, and stays stopped (P6.6).
func olderMessages(b *bench) {
	uuid := b.program(b.until())
	b.reported(uuid, cluster.StateRunning)
	b.runsOn(uuid) // a worker that has not begun the program yet could not stop it
	b.sayOldStop(uuid)
	b.repeat()
	b.waitHandled()
	b.runsOn(uuid)
	b.stop(uuid, cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonDeleted})
	b.repeat()
	b.reported(uuid, cluster.StateCancelled)
	b.repeat()
	b.waitHandled()
	suite.Pause(b, absence) // a worker may run attempts concurrently
	b.ran(1)
	b.reported(uuid, cluster.StateCancelled)
	b.finish(uuid)
}

// olderToken assigns an attempt of an earlier incarnation of the store: the worker does not begin it (P1.6).
func olderToken(b *bench) {
	uuid := b.program("exit 0")
	b.reported(uuid, cluster.StateSucceeded)
	b.set(func() { b.token.Incarnation-- })
	late := b.program("exit 0")
	b.set(func() { b.token.Incarnation++ })
	b.waitHandled()
	suite.Pause(b, absence) // a worker may run attempts concurrently
	b.ran(1)
	if b.wasBegun(late) {
		b.Errorf("the worker began an attempt of an earlier incarnation: %+v", b.newest(late))
	}
}

// forgetWhileRunning makes the server forget an attempt whose program runs: it runs on (P6.6).
func forgetWhileRunning(b *bench) {
	uuid := b.program(b.until())
	b.reported(uuid, cluster.StateRunning)
	b.say(transport.Message{Forget: &transport.Forget{UUID: uuid}})
	b.waitHandled()
	b.runsOn(uuid)
	b.proceed()
	b.reported(uuid, cluster.StateFailed)
	b.ran(1)
}

// lostConnection cuts the connection. The program runs on, and the next registration has its attempt.
func lostConnection(b *bench) {
	uuid := b.program(b.until())
	b.reported(uuid, cluster.StateRunning)
	b.close()
	b.runsOn(uuid)
	before := len(b.registrations())
	if err := b.listen(); err != nil {
		b.Fatalf("listen again: %v", err)
	}
	b.set(func() { b.session += 3 }) // the worker learns the newest session from the refusal
	r := b.registered(before + 1)
	if len(r.Tasks) != 1 || r.Tasks[0].UUID != uuid || r.Tasks[0].State != cluster.StateRunning {
		b.Errorf("the registration has %+v, want the running attempt", r.Tasks)
	}
	b.runsOn(uuid)
	b.proceed()
	b.reported(uuid, cluster.StateFailed)
	b.ran(1)
	b.finish(uuid)
	b.noFaults()
}

// newerSession ends the session, as the leader does. The worker registers again, and no task ends.
func newerSession(b *bench) {
	uuid := b.program(b.until())
	b.reported(uuid, cluster.StateRunning)
	before := len(b.registrations())
	b.endSession()
	b.registered(before + 1)
	b.runsOn(uuid)
	b.proceed()
	if o := b.reported(uuid, cluster.StateFailed); o.Reason != cluster.ReasonExit {
		b.Errorf("got %s: %s, want the end of the program itself", o.Reason, o.Message)
	}
	b.ran(1)
	b.noFaults()
}

// restart kills a worker. Its next life knows the attempt, whose program never begins again (P4.4).
func restart(b *bench) {
	uuid := b.program(b.until())
	b.reported(uuid, cluster.StateRunning)
	before := len(b.registrations())
	b.kill()
	b.start()
	if r := b.registered(before + 1); len(r.Tasks) != 1 || r.Tasks[0].UUID != uuid || r.Previous == 0 {
		b.Errorf("the worker registers with session %d and %+v, want the attempt", r.Previous, r.Tasks)
	}
	b.proceed()
	o := b.reported(uuid, cluster.StateFailed)
	if o.Reason != cluster.ReasonUnknownExit && o.Reason != cluster.ReasonExit {
		b.Errorf("got %s: %s, want the exit of the program, or an unknown one", o.Reason, o.Message)
	}
	b.silent()
	b.ran(1)
	b.finish(uuid)
}

// restartAtBarrier kills a worker that waits for the answer to its barrier: its next life asks again.
func restartAtBarrier(b *bench) {
	b.hold()
	uuid := b.program("exit 0")
	b.reported(uuid, cluster.StateStarting)
	before := len(b.registrations())
	b.kill()
	b.start()
	b.registered(before + 1)
	suite.Pause(b, absence)
	b.ran(0)
	b.release()
	b.reported(uuid, cluster.StateSucceeded)
	b.ran(1)
	b.finish(uuid)
}

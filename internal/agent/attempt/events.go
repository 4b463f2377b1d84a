package attempt

import (
	"strings"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/shorten"
)

// Admitted answers Admit: the node takes the attempt, with the named executor.
func (r *Record) Admitted(executor string, def *cluster.TaskDefinition) {
	if r.Phase != PhaseNew {
		return
	}
	r.Executor, r.Phase = executor, PhasePreparing
	r.Containers = make([]Container, len(def.Containers))
	for i := range r.Containers {
		r.Containers[i].ID = RunID(r.Desired.UUID, i, r.Round)
	}
}

// Reject ends an attempt that the node cannot take; none of its programs has run. If a stop arrived before, the
// attempt is cancelled instead.
func (r *Record) Reject(reason cluster.ReasonCode, message string, now Now) {
	if r.Terminal() || r.MayRun() || r.stop() != nil {
		return
	}
	end(r, Result{cluster.StateRejected, reason, message}, now)
}

// WasPrepared answers Prepare.
func (r *Record) WasPrepared(i int) {
	if c := &r.Containers[i]; c.Progress == Waiting {
		c.Progress, c.Old = Prepared, nil
	}
}

// PrepareFailed answers Prepare. A service tries again by its restart policy. A batch attempt, which has not passed its
// barrier, is rejected, so that it can be placed elsewhere.
func (r *Record) PrepareFailed(i int, problem string, now Now) {
	switch {
	case r.Phase != PhasePreparing && r.Phase != PhaseRunning || r.stop() != nil:
	case r.Phase == PhasePreparing && r.Desired.Batch() && r.Round == 1:
		r.Reject(cluster.ReasonPrepare, problem, now)
	default:
		r.Ending = &Ending{Cause: lifecycle.CausePrepare, Container: -1, Problem: problem}
		r.Phase = PhaseEnding
	}
}

// NoProgram answers Prepare or Launch: the program of the container does not exist, and has not run. The attempt ends
// without another round, because the next one would find it no more than this one.
func (r *Record) NoProgram(i int, problem string, now Now) {
	if r.Phase != PhasePreparing && r.Phase != PhaseRunning {
		return
	}
	r.StartFailed(i, problem, now)
	if r.stop() == nil {
		r.Ending, r.Phase = &Ending{Cause: lifecycle.CauseNoProgram, Container: -1, Problem: problem}, PhaseEnding
	}
}

// PortsProbed answers ProbePorts: they are free.
func (r *Record) PortsProbed() { r.PortsFree = true }

// BarrierPassed records the committed start barrier; asked is when its request was sent (Boot).
func (r *Record) BarrierPassed(asked time.Duration) {
	if r.AtBarrier() {
		r.Barrier.Passed = asked
	}
}

// BarrierRefused ends the attempt: its program must never run (P4.3).
func (r *Record) BarrierRefused(message string) {
	if !r.AtBarrier() || r.stop() != nil {
		return
	}
	if message == "" {
		message = "the start barrier refused it"
	}
	r.Ending, r.Phase = &Ending{Cause: lifecycle.CauseBarrier, Container: -1, Problem: message}, PhaseEnding
}

// WasStarted answers Launch. A process without a pid was started earlier, and the executor has no details of it.
func (r *Record) WasStarted(i int, p executor.Process, now Now) {
	c := &r.Containers[i]
	if c.Progress != Launched {
		return
	}
	c.Progress, c.Process = Running, p
	if c.Process.Started.IsZero() {
		c.Process.Started = now.Wall
	}
	if r.Started.IsZero() {
		r.Started = c.Process.Started
	}
}

// StartFailed answers Launch: the program did not run and will not.
func (r *Record) StartFailed(i int, problem string, now Now) {
	if c := &r.Containers[i]; c.Progress == Launched {
		c.Progress, c.Refused = Exited, problem
		c.Exit = &cluster.Exit{Code: -1, At: now.Wall}
	}
}

// StartInDoubt answers Launch: the start failed, the program may have run, and nothing of it is left.
func (r *Record) StartInDoubt(i int, problem string, now Now) {
	if c := &r.Containers[i]; c.Progress == Launched {
		c.Refused = problem
	}
	r.WasDiscarded(i, now)
}

// WasDiscarded answers Discard: nothing of the start without a result is left.
func (r *Record) WasDiscarded(i int, now Now) {
	if c := &r.Containers[i]; c.Progress == Launched {
		c.Progress = Exited
		c.Exit = &cluster.Exit{Code: -1, At: now.Wall, Unknown: true}
		if r.Started.IsZero() {
			r.Started = now.Wall // assume that it ran
		}
	}
}

// HasExited records the end of a run. Runs other than the newest of their container are ignored.
func (r *Record) HasExited(id executor.ID, exit cluster.Exit, now Now) {
	for i := range r.Containers {
		c := &r.Containers[i]
		if c.ID != id || !c.live() {
			continue
		}
		if exit.At.IsZero() {
			exit.At = now.Wall
		}
		c.Progress, c.Exit = Exited, &exit
		if exit.OOM {
			c.OOMs++
		}
		if r.Started.IsZero() {
			r.Started = now.Wall
		}
	}
}

// HasLeft answers Leave.
func (r *Record) HasLeft(now Now) { r.Left = now.Boot }

// Signalled answers Signal.
func (r *Record) Signalled(sig syscall.Signal, now Now) {
	switch e := r.Ending; {
	case e == nil:
	case sig == syscall.SIGKILL:
		e.Killed = now.Boot
	default:
		e.Termed = true
	}
}

// Forgotten records that the control plane no longer knows the attempt. No program of it may run.
func (r *Record) Forgotten() {
	if r.Desired.Stop == nil {
		r.Desired.Stop = &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonEnded}
	} else {
		stop := *r.Desired.Stop
		stop.Class = cluster.StopMandatory // no server could grant a permit any more
		r.Desired.Stop = &stop
	}
	r.Desired.Stop.Ended = true
}

// Closed answers Close with the end of the log.
func (r *Record) Closed(tail string) {
	if r.Phase != PhaseClosing {
		return
	}
	r.LogTail, r.Phase = clipTail(tail, cluster.MaxLogTail), PhaseEnded
}

// Tailed answers Tail with the end of the log.
func (r *Record) Tailed(tail string) {
	if c := r.Crash; c != nil && r.Phase == PhaseBackoff {
		crash := *c // others hold the record's copies
		crash.Tail, crash.Read = clipTail(tail, MaxCrashTail), true
		r.Crash = &crash
	}
}

// clipTail returns the end of an output as valid text of at most most bytes.
func clipTail(tail string, most int) string {
	return shorten.End(strings.ToValidUTF8(tail, "?"), most)
}

// Cleared answers Clear.
func (r *Record) Cleared() { r.Phase = PhaseGone }

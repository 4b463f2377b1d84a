package sim

import (
	"slices"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor/fake"
	"github.com/berthd/berth/internal/sim/ci"
)

// programChecker checks the starts and ends of programs.
type programChecker struct {
	*observation
	starts, ends int
}

// checkProgram processes the start or the end of a program. It runs under the machine's lock.
func (v *programChecker) checkProgram(n *node, r fake.Run) {
	uuid := r.Labels["berth.uuid"]
	v.mu.Lock()
	defer v.mu.Unlock()
	v.addToHistory("%v program %s on %s %+v", time.Since(v.began), r.ID, n.name, r.Exit)
	a := v.attempts[uuid]
	if a == nil {
		if !v.restored {
			v.breach("start-unasked", "%s started %s, which the store never knew", n.name, r.ID)
		}
		return
	}
	if v.nodeView(n.name).executorFaults > 0 {
		a.excused = true
	}
	if r.Ended.IsZero() {
		v.checkStart(n, a)
		return
	}
	v.ends++
	a.running--
	exit := r.Exit
	a.exit = &exit
	v.addToChronicle("program of %s/%d on %s ended: %+v", a.task, a.number, n.name, r.Exit)
	s := v.nodeView(n.name)
	s.running -= v.cpu[a.def]
	killed := r.Exit.Signal == int(syscall.SIGTERM) || r.Exit.Signal == int(syscall.SIGKILL)
	if killed && v.isReleased(n.name) {
		v.breach("stop-released", "%s/%d was stopped on %s, which was released to another owner", a.task, a.number,
			n.name)
	}
	if killed && !a.exceedsTimeLimit(r) && !a.stopped && !a.ended && !a.excused && !v.restored &&
		!v.story.hits(n.name, Lie) {
		v.breach("stop-unasked", "%s/%d on %s was stopped after %v, though no stop of it was ever written", a.task,
			a.number, n.name, r.Ended.Sub(r.Started))
	}
}

// exceedsTimeLimit reports whether a run of the attempt's program took as long as its step permits. The time counts
// from the agent's call, which is a little earlier than the start.
func (a *attemptHistory) exceedsTimeLimit(r fake.Run) bool {
	return a.timeLimit > 0 && r.Ended.Sub(r.Started) >= time.Duration(a.timeLimit)-time.Second
}

// checkStart processes the start of a program.
func (v *programChecker) checkStart(n *node, a *attemptHistory) {
	v.starts++
	v.addToChronicle("program of %s/%d (%s) on %s starts", a.task, a.number, a.uuid, n.name)
	a.starts++
	s := v.nodeView(n.name)
	defer func() {
		a.running++
		s.running += v.cpu[a.def]
		if s.running > nodeCPU && !v.restored && !v.overwritten && !v.isUntrusted(n.name) {
			v.breach("machine-packed", "programs on %s need %d of %d mCPU", n.name, s.running, nodeCPU)
		}
	}()
	if v.restored {
		return
	}
	if a.batch && a.starts > 1 {
		v.breach("started-twice", "%s/%d was started %d times in one attempt, on %s", a.task, a.number, a.starts,
			n.name)
	}
	v.checkRerun(n, a)
	if o := a.outcome; o != nil && (a.batch || !mayRunBesideNext(a)) && !v.isUntrusted(n.name) {
		v.breach("start-after", "%s/%d was started on %s after its outcome, %s, was written", a.task, a.number, n.name,
			o.State)
	}
	for other := range v.tasks[a.task] { // order-free: any of them
		if other == a || other.running == 0 || v.story.hits(other.node, Lie) || v.story.hits(n.name, Lie) ||
			other.excused || a.excused ||
			v.overwritten && (!a.waitsOnDisconnect || !other.reported || v.story.erases()) {
			continue // an attempt overwritten before its first report may be placed again
		}
		if a.waitsOnDisconnect || !mayRunBesideNext(a) && !mayRunBesideNext(other) {
			v.breach("two-live", "%s/%d starts on %s while attempt %d runs on %s", a.task, a.number, n.name,
				other.number, other.node)
		}
	}
}

// checkRerun checks, at the start of a program of a job, that the task may run again if it ran before. Unless its step
// is idempotent, each earlier start uses a retry. An exit code that is not tried again ends it.
func (v *programChecker) checkRerun(n *node, a *attemptHistory) {
	parts, _ := a.task.Parts()
	job, step := v.stepOf(parts)
	if step == nil || !a.batch {
		return
	}
	retried, began := job.Retried.Of(parts.Step, parts.Index), 0
	for other := range v.tasks[a.task] { // order-free: a count, and at most one breach
		o := other.outcome
		if other == a || other.starts == 0 || other.endedForOthers() || v.isUntrusted(other.node) ||
			o != nil && ci.IsSettled(o, retried) {
			continue
		}
		began++
		if other.number == a.number-1 && o != nil && o.State == cluster.StateFailed && o.Reason == cluster.ReasonExit &&
			other.exit != nil && other.exit.Signal == 0 && ci.IsFinalCode(step, other.exit.Code) {
			v.breach("run-again", "%s/%d starts on %s although attempt %d exited with code %d", a.task, a.number,
				n.name, other.number, other.exit.Code)
		}
	}
	if began > step.Retries && !step.Idempotent {
		v.breach("run-again", "%s/%d starts on %s, its program has run in %d earlier attempts, and %d retries are "+
			"allowed", a.task, a.number, n.name, began, step.Retries)
	}
}

// endedForOthers reports whether Berth ended an attempt in favour of other tasks or to empty its node. Such an end uses
// no retry, whatever the step says.
func (a *attemptHistory) endedForOthers() bool {
	return a.outcome != nil && a.outcome.State == cluster.StateCancelled &&
		slices.Contains([]cluster.ReasonCode{
			cluster.ReasonPreempted, cluster.ReasonDrain, cluster.ReasonPressure, cluster.ReasonTaint,
			cluster.ReasonConstraint, cluster.ReasonReserved, cluster.ReasonRebalance,
		}, a.outcome.Reason)
}

// mayRunBesideNext reports whether the attempt may continue in parallel to the next one of its task. Its node was
// silent, it moves off its node, or it has a stop and is wanted again.
func mayRunBesideNext(a *attemptHistory) bool {
	o := a.outcome
	if o == nil {
		return a.ended // its outcome was trimmed
	}
	return o.State == cluster.StateLost || o.State == cluster.StateCancelled &&
		slices.Contains([]cluster.ReasonCode{
			cluster.ReasonDrain, cluster.ReasonPressure, cluster.ReasonTaint, cluster.ReasonConstraint,
			cluster.ReasonReserved, cluster.ReasonRebalance, cluster.ReasonReplaced,
		}, o.Reason)
}

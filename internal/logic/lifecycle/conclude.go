package lifecycle

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Loss is the reason for which the control plane gives up an attempt without a report of its end.
type Loss struct {
	Reason  cluster.ReasonCode
	Message string
}

// Ending holds the facts about an attempt that may have ended.
type Ending struct {
	Attempt cluster.Attempt
	// Loss is nil while the attempt's node can be asked.
	Loss *Loss
	// FreeLosses is the number of earlier attempts of the task that were lost or rejected free of charge.
	FreeLosses int
	// Idempotent says that the task may run more than once.
	Idempotent bool
	Now        time.Time
}

// Conclude returns how the attempt ended, or ok false if it has not ended or has its outcome already. The agent's
// report precedes a loss. Outcome.Free is set for an attempt that was lost or rejected before user code may have run,
// for up to MaxDispatches attempts of a task. An idempotent task also has those attempts free that were lost after
// their start, or ended with their machine or without a known exit. Free is also set for every cancelled attempt,
// because its end was not its own fault.
func Conclude(e Ending) (out cluster.Outcome, ok bool) {
	d, o := e.Attempt.Desired, ownObservation(e.Attempt)
	if e.Attempt.Outcome != nil || d == nil && o == nil {
		return out, false
	}
	if d != nil {
		out.Task, out.Attempt, out.UUID, out.Node = d.Task, d.Attempt, d.UUID, d.Node
		out.Owner, out.Definition, out.Placed = d.Owner, d.Definition, d.Placed
	} else {
		out.Task, out.Attempt, out.UUID, out.Node = o.Task, o.Attempt, o.UUID, o.Node
	}
	switch {
	case o != nil && o.State.Terminal():
		v := reportedEnd(d, o)
		out.State, out.Reason, out.Message = v.State, v.Reason, v.Message
	case e.Loss != nil:
		out.State, out.Reason, out.Message = cluster.StateLost, e.Loss.Reason, e.Loss.Message
	default:
		return cluster.Outcome{}, false
	}
	out.Ended = e.Now
	out.Started = Started(e.Attempt)
	if o != nil {
		out.Begun, out.LogTail, out.Exit = o.Started, o.LogTail, lastExit(o)
		if o.State.Terminal() && !o.Finished.IsZero() {
			out.Ended = o.Finished
		}
	}
	// The clock of the node may be ahead of the leader's. An end in the leader's future would put off what is counted
	// from it, such as the next try.
	if ahead := out.Ended.Sub(e.Now); ahead > 0 && !e.Now.IsZero() {
		out.Ended = e.Now
		if !out.Begun.IsZero() {
			out.Begun = out.Begun.Add(-ahead)
		}
	}
	switch {
	case out.State == cluster.StateCancelled:
		out.Free = true
	case interrupted(&out):
		out.Free = (!out.Started || e.Idempotent) && e.FreeLosses < cluster.MaxDispatches
	}
	return out, true
}

// interrupted reports whether the attempt ended through no fault of its program.
func interrupted(o *cluster.Outcome) bool {
	switch o.State {
	case cluster.StateLost, cluster.StateRejected:
		return true
	case cluster.StateFailed: // the program was running, so this is free for idempotent tasks only
		return o.Started && (o.Reason == cluster.ReasonBootChanged || o.Reason == cluster.ReasonUnknownExit)
	default:
		return false
	}
}

// Started reports whether user code of the attempt may have run: a batch attempt passed its barrier, or a service's
// attempt left the preparing state. In doubt it returns true.
func Started(a cluster.Attempt) bool {
	if a.Outcome != nil {
		return a.Outcome.Started
	}
	o := ownObservation(a)
	if o == nil {
		return false
	}
	if !o.Started.IsZero() || o.Reason == cluster.ReasonUnknownExit {
		return true
	}
	switch o.State {
	case cluster.StateStarting, cluster.StateRunning, cluster.StateSucceeded:
		return true
	default:
		return false
	}
}

// lastExit returns the end of the container that ended the task: the last one that ended badly,
// else the last one that ended.
func lastExit(o *cluster.Observed) *cluster.Exit {
	var last *cluster.Exit
	for i := range o.Containers {
		x := o.Containers[i].Exit
		if x == nil {
			continue
		}
		if last == nil || last.Success() && !x.Success() || last.Success() == x.Success() && !x.At.Before(last.At) {
			last = x
		}
	}
	if last == nil {
		return nil
	}
	exit := *last
	return &exit
}

// Cause is why an agent ended a round of an attempt, or saw it end.
type Cause string

// Causes. Agents keep them in their state.
const (
	CauseExit      Cause = "exit"       // an essential container ended, or an init container failed
	CauseStop      Cause = "stop"       // the control plane ordered it
	CauseTimeLimit Cause = "time-limit" // the attempt ran too long
	CausePrepare   Cause = "prepare"    // a container could not be made
	CauseNoProgram Cause = "no-program" // the program of a container does not exist
	CauseBarrier   Cause = "barrier"    // the start barrier refused it
	CauseCheck     Cause = "check"      // a check of the meaning startup or liveness is failing
	CauseRenewal   Cause = "renewal"    // its containers restart with changed configuration
)

// End is how a round of an attempt ended, as its agent saw it.
type End struct {
	Cause Cause
	// Problem is the message of CausePrepare, CauseNoProgram, CauseBarrier, CauseCheck and CauseRenewal.
	Problem string
	// Stop, unless nil, is the stop in the attempt's assignment.
	Stop *cluster.Stop
	// Batch says that the task runs to success, TimeLimit how long it may run.
	Batch     bool
	TimeLimit time.Duration
	// Rebooted says that the machine was restarted meanwhile. Unseen says that the end of a container is unknown.
	Rebooted, Unseen bool
	// Bad, unless nil, is the container that ended badly and caused the end.
	Bad *BadEnd
}

// BadEnd is the bad end of a container.
type BadEnd struct {
	Container string
	// Refused, unless empty, is why the executor could not start the container. Exit is unknown if its program may have
	// run, and empty if not.
	Refused string
	Exit    cluster.Exit
	// After, unless empty, is the container that ended before and thereby ended the round.
	After string
}

// Classify returns the state, reason and message with which an agent ends the attempt after a round. If final is false,
// the restart policy decides first (P4.5). A batch attempt that ended by itself keeps its own result even if it has a
// stop. A batch attempt whose end is unknown is never run again in place (P4.4).
func Classify(e End) (v View, final bool) {
	natural := e.Cause == CauseExit && e.Batch && !e.Rebooted
	switch {
	case e.Cause == CauseTimeLimit:
		return View{
			State: cluster.StateFailed, Reason: cluster.ReasonTimeLimit,
			Message: "exceeded its time_limit of " + cluster.Duration(e.TimeLimit).String(),
		}, true
	case e.Stop != nil && !natural:
		return View{State: cluster.StateCancelled, Reason: e.Stop.Reason, Message: e.Stop.Message}, true
	case e.Cause == CauseRenewal:
		return View{State: cluster.StateSucceeded, Message: e.Problem}, false
	case e.Cause == CauseBarrier:
		return View{State: cluster.StateRejected, Reason: cluster.ReasonBarrier, Message: e.Problem}, true
	case e.Cause == CausePrepare:
		return View{State: cluster.StateFailed, Reason: cluster.ReasonPrepare, Message: e.Problem}, false
	case e.Cause == CauseNoProgram:
		return View{State: cluster.StateFailed, Reason: cluster.ReasonNoProgram, Message: e.Problem}, true
	case e.Cause == CauseCheck:
		return View{State: cluster.StateFailed, Reason: cluster.ReasonUnhealthy, Message: e.Problem},
			e.Batch && e.Unseen
	case e.Rebooted:
		return View{
			State: cluster.StateFailed, Reason: cluster.ReasonBootChanged,
			Message: "the machine restarted while the task ran",
		}, e.Batch
	}
	final = e.Stop != nil || e.Batch && e.Unseen
	if e.Bad == nil {
		return View{State: cluster.StateSucceeded}, final
	}
	reason, message := e.Bad.why()
	if e.Bad.After != "" {
		message += ", after container " + e.Bad.After + " ended"
	}
	return View{State: cluster.StateFailed, Reason: reason, Message: message}, final
}

// why returns the reason and message of the container's end.
func (b *BadEnd) why() (cluster.ReasonCode, string) {
	switch {
	case b.Refused != "" && b.Exit.Unknown:
		return cluster.ReasonStartFailed,
			fmt.Sprintf("container %s failed to start, and may have run: %s", b.Container, b.Refused)
	case b.Refused != "":
		return cluster.ReasonStartFailed, fmt.Sprintf("container %s could not be started: %s", b.Container, b.Refused)
	case b.Exit.Unknown:
		return cluster.ReasonUnknownExit, fmt.Sprintf("the end of container %s is unknown", b.Container)
	case b.Exit.OOM:
		return cluster.ReasonOOM, fmt.Sprintf("container %s was killed for its memory limit", b.Container)
	case b.Exit.Signal != 0:
		return cluster.ReasonExit, fmt.Sprintf("container %s was ended by signal %d", b.Container, b.Exit.Signal)
	}
	return cluster.ReasonExit, fmt.Sprintf("container %s exited with code %d", b.Container, b.Exit.Code)
}

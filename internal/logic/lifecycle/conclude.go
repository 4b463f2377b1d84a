package lifecycle

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Loss is why the control plane gives an attempt up without a report of its end.
type Loss struct {
	Reason  cluster.ReasonCode
	Message string
}

// Ending is what is known when an attempt may have ended.
type Ending struct {
	Attempt cluster.Attempt
	// Loss is nil while the attempt's node can still be asked.
	Loss *Loss
	// Freed is how many earlier attempts of the task were lost or rejected free of charge.
	Freed int
	Now   time.Time
}

// Conclude returns how the attempt ended, or ok false if it has not ended or has its outcome already. What the
// agent reported goes before a loss. Outcome.Free is set for an attempt that was lost or
// rejected before user code may have run, up to MaxDispatches of them in a task, and for every
// cancelled one: it ran no risk of its own making.
func Conclude(e Ending) (out cluster.Outcome, ok bool) {
	d, o := e.Attempt.Desired, seen(e.Attempt)
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
		v := reported(d, o)
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
	switch out.State {
	case cluster.StateLost, cluster.StateRejected:
		out.Free = !out.Started && e.Freed < cluster.MaxDispatches
	case cluster.StateCancelled:
		out.Free = true
	default:
	}
	return out, true
}

// Started reports whether user code of the attempt may have run: it passed its barrier or, as a
// service's, left the preparing state. In doubt it says yes.
func Started(a cluster.Attempt) bool {
	if a.Outcome != nil {
		return a.Outcome.Started
	}
	o := seen(a)
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

// End is how a task's program ended, as its agent sees it.
type End struct {
	Container string
	Exit      cluster.Exit
	// Stopped says that the agent had been told to stop the task before the program ended.
	Stopped bool
	// OverTime says that the agent ended it for its time limit.
	OverTime bool
	// Batch says that the task runs to success; a service's task that is stopped counts as
	// cancelled however it ends.
	Batch bool
}

// Classify returns the terminal state, with reason and message, that an agent reports for an
// attempt whose program ended and is not restarted.
func Classify(e End) View {
	name := "container " + e.Container
	if e.Container == "" {
		name = "its program"
	}
	switch {
	case e.Batch && e.Exit.Success():
		return View{State: cluster.StateSucceeded, Reason: cluster.ReasonExit, Message: name + " exited with code 0"}
	case e.Stopped:
		return View{State: cluster.StateCancelled, Reason: cluster.ReasonCancelled, Message: "it was stopped"}
	case e.OverTime:
		return View{State: cluster.StateFailed, Reason: cluster.ReasonTimeLimit, Message: "it ran longer than its time limit"}
	case e.Exit.Unknown:
		return View{State: cluster.StateFailed, Reason: cluster.ReasonUnknownExit, Message: "nobody saw how " + name + " ended"}
	case e.Exit.OOM:
		return View{State: cluster.StateFailed, Reason: cluster.ReasonOOM, Message: name + " was killed for its memory limit"}
	case e.Exit.Signal != 0:
		return View{
			State: cluster.StateFailed, Reason: cluster.ReasonExit,
			Message: fmt.Sprintf("%s was ended by signal %d", name, e.Exit.Signal),
		}
	case e.Exit.Success():
		return View{State: cluster.StateSucceeded, Reason: cluster.ReasonExit, Message: name + " exited with code 0"}
	}
	return View{
		State: cluster.StateFailed, Reason: cluster.ReasonExit,
		Message: fmt.Sprintf("%s exited with code %d", name, e.Exit.Code),
	}
}

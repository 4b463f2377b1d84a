package attempt

import (
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
	"github.com/berthd/berth/internal/shorten"
)

// maxMessage limits the reported message, in bytes: some errors are very long.
const maxMessage = 1000

// Observed returns the report of the attempt. The caller sets node, session and sequence.
func (r *Record) Observed(def *cluster.TaskDefinition) cluster.Observed {
	o := cluster.Observed{
		Task: r.Desired.Task, Attempt: r.Desired.Attempt, UUID: r.Desired.UUID,
		Definition: r.Desired.Definition, Count: r.Desired.Count, Ports: r.Desired.Ports, Devices: r.Desired.Devices,
		Plan:  r.Desired.Plan,
		State: stateOf(r), Health: r.Health,
		Message: r.Note, Started: r.Started, Finished: r.Finished, Since: r.Since,
		Restarts: r.Restarts.Total, LogTail: r.LogTail, Ask: r.Permit.Ask, Gone: r.Phase == PhaseGone,
	}
	if r.Result != nil {
		o.Reason, o.Message = r.Result.Reason, r.Result.Message
	} else if r.Ending != nil && r.Ending.Unkillable {
		o.Reason = cluster.ReasonUnkillable
	} else if c := r.Crash; c != nil {
		o.Reason, o.LogTail = c.Reason, c.Tail
		if o.Message == "" {
			o.Message = c.Message + " (" + cluster.RestartsText(r.Restarts.Total) + ")"
		}
	}
	if r.Result == nil && o.Reason == "" && r.Renewal != "" {
		o.Reason = cluster.ReasonAddresses
		if o.Message == "" {
			o.Message = "restarted: " + r.Renewal
		}
	}
	if r.Phase == PhaseBackoff {
		o.NextStart = r.NextStart
	}
	o.Message = shorten.Marked(o.Message, maxMessage)
	for i := range r.Containers {
		o.Containers = append(o.Containers, r.Containers[i].status(name(def, i)))
	}
	return o
}

func (c *Container) status(name string) cluster.ContainerStatus {
	s := cluster.ContainerStatus{
		Name: name, State: cluster.ContainerWaiting, Restarts: c.Restarts, OOMs: c.OOMs, Exit: c.Exit,
	}
	switch c.Progress {
	case Running:
		s.State = cluster.ContainerRunning
		s.Pid, s.PidStart, s.Started = c.Process.Pid, c.Process.PidStart, c.Process.Started
	case Exited:
		s.State, s.Started = cluster.ContainerExited, c.Process.Started
	case Waiting, Prepared, Launched:
	}
	return s
}

// stateOf returns the reported state, by the moves of package lifecycle. A restart in place is reported as starting.
func stateOf(r *Record) cluster.State {
	switch r.Phase {
	case PhaseNew, PhasePreparing:
		if r.Begun == 0 {
			return cluster.StatePreparing
		}
		return cluster.StateStarting
	case PhaseBarrier:
		return cluster.StateStarting
	case PhaseRunning:
		for i := range r.Containers {
			if p := r.Containers[i].Progress; p == Running || p == Exited {
				return cluster.StateRunning
			}
		}
		return cluster.StateStarting
	case PhaseBackoff:
		if r.Begun == 0 {
			return cluster.StatePreparing
		}
		return cluster.StateStarting
	case PhaseEnding, PhaseClosing:
		if c := r.Ending; c != nil && (c.Cause != lifecycle.CauseExit && c.Cause != lifecycle.CausePrepare &&
			c.Cause != lifecycle.CauseCheck && c.Cause != lifecycle.CauseRenewal) { // no restart in place
			return cluster.StateStopping
		}
		switch {
		case !r.Started.IsZero():
			return cluster.StateRunning
		case r.Begun != 0:
			return cluster.StateStarting
		}
		return cluster.StatePreparing
	case PhaseEnded, PhaseGone:
	}
	if r.Result == nil {
		return cluster.StateCancelled
	}
	return r.Result.State
}

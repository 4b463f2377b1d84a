package attempt

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
)

// settle decides, once nothing lives, whether the attempt has ended or runs another round.
func (r *Record) settle(def *cluster.TaskDefinition, now Now) {
	natural := r.Ending.Cause == CauseExit && r.Desired.Batch() && !r.Rebooted
	switch {
	case r.Ending.Cause == CauseTimeLimit:
		r.end(Result{
			cluster.StateFailed, cluster.ReasonTimeLimit,
			"ran longer than its time limit of " + r.Desired.TimeLimit.String(),
		}, now)
		return
	case r.Desired.Stop != nil && !natural:
		r.stopped(now)
		return
	case r.Ending.Cause == CauseBarrier:
		r.end(Result{cluster.StateRejected, cluster.ReasonBarrier, r.Ending.Problem}, now)
		return
	}
	result, unknown := r.outcome(def)
	r.restart(def, result, unknown, now)
}

// stopped ends the attempt because it was told to stop.
func (r *Record) stopped(now Now) {
	stop := r.Desired.Stop
	if r.Ending == nil {
		r.Ending = &Ending{Cause: CauseStop, Container: -1}
	}
	r.end(Result{cluster.StateCancelled, stop.Reason, stop.Message}, now)
}

// end makes the attempt terminal. What ran and failed has the end of its log read first.
func (r *Record) end(result Result, now Now) {
	r.Result = &result
	r.Health, r.Note, r.Finished = cluster.HealthUnknown, "", now.Wall
	r.Phase = PhaseEnded
	if result.State == cluster.StateFailed && r.culprit() >= 0 {
		r.Phase = PhaseClosing
	}
}

// culprit returns the container to blame, or -1.
func (r *Record) culprit() int {
	if r.Ending != nil && r.Ending.Container >= 0 {
		return r.Ending.Container
	}
	for i := range r.Containers {
		if r.Containers[i].begun() {
			return i
		}
	}
	return -1
}

// outcome tells how the round ended: well, if every essential container ended with code 0. Unknown says
// that the end of something that ran was seen by nobody.
func (r *Record) outcome(def *cluster.TaskDefinition) (result Result, unknown bool) {
	if r.Ending.Cause == CausePrepare {
		return Result{cluster.StateFailed, cluster.ReasonPrepare, r.Ending.Problem}, false
	}
	if r.Rebooted {
		return Result{cluster.StateFailed, cluster.ReasonBootChanged, "the machine was started anew while the task ran"}, true
	}
	bad := -1
	blame := func(i int) {
		c, d := &r.Containers[i], &def.Containers[i]
		essential := !d.Optional || d.Init || i == r.Ending.Container
		if bad < 0 && essential && c.Progress == Exited && !c.succeeded() {
			bad = i
		}
		unknown = unknown || c.Exit != nil && c.Exit.Unknown && c.Progress == Exited && !d.Optional
	}
	if r.Ending.Container >= 0 {
		blame(r.Ending.Container)
	}
	for i := range r.Containers {
		blame(i)
	}
	if bad < 0 {
		return Result{State: cluster.StateSucceeded}, false
	}
	reason, message := r.Containers[bad].why(name(def, bad))
	if bad != r.Ending.Container && r.Ending.Container >= 0 {
		message += ", after container " + name(def, r.Ending.Container) + " ended"
	}
	return Result{cluster.StateFailed, reason, message}, unknown
}

// why says how a container ended that did not end well.
func (c *Container) why(name string) (cluster.ReasonCode, string) {
	switch {
	case c.Refused != "":
		return cluster.ReasonStartFailed, fmt.Sprintf("container %s could not be started: %s", name, c.Refused)
	case c.Exit.Unknown:
		return cluster.ReasonUnknownExit, fmt.Sprintf("nobody saw how container %s ended", name)
	case c.Exit.OOM:
		return cluster.ReasonOOM, fmt.Sprintf("container %s was killed for its memory limit", name)
	case c.Exit.Signal != 0:
		return cluster.ReasonExit, fmt.Sprintf("container %s was ended by signal %d", name, c.Exit.Signal)
	}
	return cluster.ReasonExit, fmt.Sprintf("container %s ended with exit code %d", name, c.Exit.Code)
}

// restart begins the wait for the next round if the policy wants one, and ends the attempt if not (P4.5).
// Batch whose end nobody saw is never run again in place (P4.4).
func (r *Record) restart(def *cluster.TaskDefinition, result Result, unknown bool, now Now) {
	if r.Desired.Stop != nil || r.Desired.Batch() && unknown {
		r.end(result, now)
		return
	}
	policy := r.policy(def)
	var ran time.Duration
	if r.RoundBegun != 0 {
		ran = now.Boot - r.RoundBegun
	}
	success := result.State == cluster.StateSucceeded
	d := lifecycle.NextRestart(policy, r.Restarts, success, ran, time.Unix(0, int64(now.Boot)))
	message := result.Message
	if message == "" {
		message = "its program ended with code 0"
	}
	switch {
	case d.Limit:
		result = Result{
			cluster.StateFailed, cluster.ReasonRestartLimit,
			fmt.Sprintf("was restarted %d times within %v; the last time: %s", len(r.Restarts.At), policy.Window, message),
		}
		r.end(result, now)
	case !d.Again:
		r.end(result, now)
	default:
		r.Restarts = d.Next
		r.NotBefore = now.Boot + d.Delay
		r.Phase, r.Health = PhaseBackoff, cluster.HealthUnknown
		r.Note = fmt.Sprintf("starts again after %v: %s", d.Delay, message)
	}
}

// policy is the definition's, with what it does not say filled in.
func (r *Record) policy(def *cluster.TaskDefinition) cluster.Restart {
	p := def.Restart
	if p.Mode == "" {
		p.Mode = cluster.RestartAlways
		if r.Desired.Batch() {
			p.Mode = cluster.RestartNever
		}
	}
	if p.Limit <= 0 {
		p.Limit = defaultLimit
	}
	p.Window = cluster.Duration(or(p.Window, defaultWindow))
	p.Delay = cluster.Duration(or(p.Delay, defaultDelay))
	p.MaxDelay = cluster.Duration(or(p.MaxDelay, defaultMaxDelay))
	return p
}

package attempt

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
)

// settle decides, once no container lives, whether the attempt has ended or runs another round.
func (r *Record) settle(def *cluster.TaskDefinition, now Now) {
	v, final := lifecycle.Classify(r.ended(def))
	result := Result{v.State, v.Reason, v.Message}
	if final {
		r.end(result, now)
		return
	}
	if r.Ending.Cause == lifecycle.CauseRenewal {
		r.renewed(now)
		return
	}
	r.restart(def, result, now)
}

// ended describes the end of the round. The round ended well if every essential container ended with code 0.
func (r *Record) ended(def *cluster.TaskDefinition) lifecycle.End {
	e := lifecycle.End{
		Cause: r.Ending.Cause, Problem: r.Ending.Problem, Stop: r.stop(), Batch: r.Desired.Batch(),
		TimeLimit: time.Duration(r.Desired.TimeLimit), Rebooted: r.Rebooted,
	}
	bad := -1
	blame := func(i int) {
		c, d := &r.Containers[i], &def.Containers[i]
		essential := !d.Optional || d.Init || i == r.Ending.Container
		if bad < 0 && essential && c.Progress == Exited && !c.succeeded() {
			bad = i
		}
		e.Unseen = e.Unseen || c.Exit != nil && c.Exit.Unknown && c.Progress == Exited && !d.Optional
	}
	first := r.Ending.Container
	if first >= 0 {
		blame(first)
	}
	for i := range r.Containers {
		blame(i)
	}
	if bad < 0 {
		return e
	}
	c := &r.Containers[bad]
	e.Bad = &lifecycle.BadEnd{Container: name(def, bad), Refused: c.Refused}
	if c.Exit != nil {
		e.Bad.Exit = *c.Exit
	}
	if bad != first && first >= 0 {
		e.Bad.After = name(def, first)
	}
	return e
}

// stopped ends the attempt because of its stop.
func (r *Record) stopped(now Now) {
	stop := r.Desired.Stop
	if r.Ending == nil {
		r.Ending = &Ending{Cause: lifecycle.CauseStop, Container: -1}
	}
	r.end(Result{cluster.StateCancelled, stop.Reason, stop.Message}, now)
}

// end makes the attempt terminal. After a failure the end of the log of the blamed container is read first.
func (r *Record) end(result Result, now Now) {
	r.Result = &result
	r.Health, r.Note, r.Finished = cluster.HealthUnknown, "", now.Wall
	r.Phase = PhaseEnded
	if result.State == cluster.StateFailed && r.blamedContainer() >= 0 {
		r.Phase = PhaseClosing
	}
}

// blamedContainer returns the container to blame, or -1.
func (r *Record) blamedContainer() int {
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

// restart begins the wait for the next round if the policy allows one, and otherwise ends the attempt (P4.5).
func (r *Record) restart(def *cluster.TaskDefinition, result Result, now Now) {
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
		text := fmt.Sprintf("was restarted %s within %v; the last time: %s", times(len(r.Restarts.At)), policy.Window,
			message)
		if n := r.ooms(); n > 1 {
			text += fmt.Sprintf("; it was killed for its memory limit %s in all", times(n))
		}
		r.end(Result{cluster.StateFailed, cluster.ReasonRestartLimit, text}, now)
	case !d.Again:
		r.end(result, now)
	default:
		r.Restarts = d.Next
		r.NotBefore = now.Boot + d.Delay
		r.Phase, r.Health = PhaseBackoff, cluster.HealthUnknown
		c := r.blamedContainer()
		r.Crash = &Crash{Reason: result.Reason, Message: message, Container: c, Read: c < 0}
		r.Note = fmt.Sprintf("starts again after %v: %s", d.Delay, message)
	}
}

// ooms returns how often containers of the attempt were killed for their memory limit.
func (r *Record) ooms() (n int) {
	for i := range r.Containers {
		n += r.Containers[i].OOMs
	}
	return n
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// policy returns the definition's restart policy with its defaults.
func (r *Record) policy(def *cluster.TaskDefinition) cluster.Restart {
	p := def.Restart.For(r.Desired.Owner.Kind)
	if p.Limit <= 0 {
		p.Limit = defaultLimit
	}
	p.Window = cluster.Duration(orDefault(p.Window, defaultWindow))
	p.Delay = cluster.Duration(orDefault(p.Delay, defaultDelay))
	p.MaxDelay = cluster.Duration(orDefault(p.MaxDelay, defaultMaxDelay))
	return p
}

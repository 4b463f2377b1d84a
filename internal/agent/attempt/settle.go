package attempt

import (
	"cmp"
	"fmt"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
)

// settle decides, once no container lives, whether the attempt has ended or runs another round.
func (t *transition) settle() {
	v, final := lifecycle.Classify(t.ended())
	result := Result{v.State, v.Reason, v.Message}
	if final {
		end(t.Record, result, t.now)
		return
	}
	if t.Ending.Cause == lifecycle.CauseRenewal {
		t.renewed()
		return
	}
	t.restart(result)
}

// ended describes the end of the round. The round ended well if every essential container ended with code 0.
func (t *transition) ended() lifecycle.End {
	e := lifecycle.End{
		Cause: t.Ending.Cause, Problem: t.Ending.Problem, Stop: t.stop(), Batch: t.Desired.Batch(),
		TimeLimit: time.Duration(t.Desired.TimeLimit), Rebooted: t.Rebooted,
	}
	bad := -1
	blame := func(i int) {
		c, d := &t.Containers[i], &t.def.Containers[i]
		essential := !d.Optional || d.Init || i == t.Ending.Container
		if bad < 0 && essential && c.Progress == Exited && !c.succeeded() {
			bad = i
		}
		e.Unseen = e.Unseen || c.Exit != nil && c.Exit.Unknown && c.Progress == Exited && !d.Optional
	}
	first := t.Ending.Container
	if first >= 0 {
		blame(first)
	}
	for i := range t.Containers {
		blame(i)
	}
	if bad < 0 {
		return e
	}
	c := &t.Containers[bad]
	e.Bad = &lifecycle.BadEnd{Container: name(t.def, bad), Refused: c.Refused}
	if c.Exit != nil {
		e.Bad.Exit = *c.Exit
	}
	if bad != first && first >= 0 {
		e.Bad.After = name(t.def, first)
	}
	return e
}

// restart begins the wait for the next round if the policy allows one, and otherwise ends the attempt (P4.5).
func (t *transition) restart(result Result) {
	policy := t.policy()
	var ran time.Duration
	if t.RoundBegun != 0 {
		ran = t.now.Boot - t.RoundBegun
	}
	success := result.State == cluster.StateSucceeded
	d := lifecycle.NextRestart(policy, t.Restarts, success, ran, time.Unix(0, int64(t.now.Boot)))
	message := result.Message
	if message == "" {
		message = "exited with code 0"
	}
	switch {
	case d.Limit:
		text := fmt.Sprintf("%s; gave up after %s within %v", message, cluster.RestartsText(len(t.Restarts.At)),
			policy.Window)
		if n := t.Containers.ooms(); n > 1 {
			text += fmt.Sprintf("; killed for its memory limit %d times", n)
		}
		end(t.Record, Result{cluster.StateFailed, cluster.ReasonRestartLimit, text}, t.now)
	case !d.Again:
		end(t.Record, result, t.now)
	default:
		t.Restarts = d.Next
		t.NotBefore, t.NextStart = t.now.Boot+d.Delay, t.now.Wall.Add(d.Delay)
		t.Phase, t.Health = PhaseBackoff, cluster.HealthUnknown
		c := blamed(t.Record)
		t.Crash = &Crash{Reason: result.Reason, Message: message, Container: c, Read: c < 0}
		t.Note = fmt.Sprintf("%s (%s, next in %v)", message, cluster.RestartsText(d.Next.Total), d.Delay)
	}
}

// policy returns the definition's restart policy with its defaults.
func (t *transition) policy() cluster.Restart {
	p := t.def.Restart.For(t.Desired.Owner.Kind)
	if p.Limit <= 0 {
		p.Limit = cluster.DefaultRestartLimit
	}
	p.Window = cmp.Or(p.Window, cluster.DefaultRestartWindow)
	p.Delay = cmp.Or(p.Delay, cluster.DefaultRestartDelay)
	p.MaxDelay = cmp.Or(p.MaxDelay, cluster.DefaultRestartMax)
	return p
}

// renewed begins the next round of an attempt after Renew.
func (t *transition) renewed() {
	t.Phase, t.NotBefore, t.NextStart = PhaseBackoff, t.now.Boot, time.Time{}
	t.Note = "restarting: " + t.Ending.Problem
}

// stopped ends the attempt because of its stop.
func (t *transition) stopped() {
	stop := t.Desired.Stop
	if t.Ending == nil {
		t.Ending = &Ending{Cause: lifecycle.CauseStop, Container: -1}
	}
	end(t.Record, Result{cluster.StateCancelled, stop.Reason, stop.Message}, t.now)
}

// end makes the attempt terminal. After a failure the end of the log of the blamed container is read first.
func end(r *Record, result Result, now Now) {
	r.Result = &result
	r.Health, r.Note, r.Finished = cluster.HealthUnknown, "", now.Wall
	r.Phase = PhaseEnded
	if result.State == cluster.StateFailed && blamed(r) >= 0 {
		r.Phase = PhaseClosing
	}
}

// blamed returns the container to blame, or -1.
func blamed(r *Record) int {
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

package attempt

import (
	"cmp"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
)

// transition moves a record at one moment. Its methods change the record and nothing else. The definition is nil if the
// agent does not have it.
type transition struct {
	*Record
	def *cluster.TaskDefinition
	now Now
}

// move makes one move; ok means that step must be done before the next move.
func (t *transition) move() (step Step, ok bool) {
	switch t.Phase {
	case PhaseNew:
		return t.newAttempt()
	case PhasePreparing:
		return t.preparing()
	case PhaseBarrier:
		return t.barrier()
	case PhaseRunning:
		return t.running()
	case PhaseEnding:
		return t.ending()
	case PhaseBackoff:
		return t.backoff()
	case PhaseClosing:
		return Step{Do: Close, Container: blamed(t.Record)}, true
	case PhaseEnded:
		if t.Desired.Ended() {
			return Step{Do: Clear}, true
		}
	case PhaseGone:
	}
	return Step{Do: Wait}, true
}

func (t *transition) newAttempt() (Step, bool) {
	switch {
	case t.stop() != nil:
		t.stopped()
		return Step{}, false
	case t.def == nil:
		end(t.Record, Result{
			cluster.StateRejected, cluster.ReasonNoDefinition,
			"the node did not receive the definition " + t.Desired.Definition.String(),
		}, t.now)
		return Step{}, false
	}
	return Step{Do: Admit}, true
}

func (t *transition) preparing() (Step, bool) {
	if t.stop() != nil {
		t.Ending = &Ending{Cause: lifecycle.CauseStop, Container: -1}
		t.Phase = PhaseEnding
		return Step{}, false
	}
	for i := range t.Containers {
		if t.Containers[i].Progress == Waiting {
			return Step{Do: Prepare, Container: i}, true
		}
	}
	if !t.PortsFree {
		return Step{Do: ProbePorts}, true
	}
	t.Note = ""
	t.Phase = PhaseRunning
	if t.Desired.Batch() && t.Started.IsZero() {
		t.Phase = PhaseBarrier
	}
	return Step{}, false
}

// barrier waits for the answer, and asks again if the answer is too old to start by (P4.3).
func (t *transition) barrier() (Step, bool) {
	switch {
	case t.stop() != nil:
		t.Ending = &Ending{Cause: lifecycle.CauseStop, Container: -1}
		t.Phase = PhaseEnding
		return Step{}, false
	case t.Barrier.Passed == 0:
		return Step{Do: Wait}, true
	case t.barrierStale():
		t.Barrier = Barrier{Ask: t.Barrier.Ask + 1}
		return Step{}, false
	}
	t.Phase = PhaseRunning
	return Step{}, false
}

// barrierStale reports whether the passed barrier is too old for user code to start by.
func (t *transition) barrierStale() bool {
	return t.Barrier.Passed == 0 || t.now.Boot-t.Barrier.Passed > BarrierAge
}

// running launches the containers that are due and detects the end of the round.
func (t *transition) running() (Step, bool) {
	limit := t.limitAt()
	checked, judgeAgain := t.judge()
	switch {
	case t.stop() != nil && t.mustLeave():
		return Step{Do: Leave}, true
	case t.stop() != nil:
		if at := t.lingerUntil(); at > t.now.Boot && t.Containers.ending(t.def) < 0 {
			return Step{Do: Wait, At: at}, true
		}
		return endRound(t.Record, Ending{Cause: lifecycle.CauseStop, Container: -1})
	case limit != 0 && t.now.Boot >= limit:
		return endRound(t.Record, Ending{Cause: lifecycle.CauseTimeLimit, Container: -1})
	}
	if i := t.Containers.ending(t.def); i >= 0 {
		return endRound(t.Record, Ending{Cause: lifecycle.CauseExit, Container: i})
	}
	if checked.Fatal != "" {
		t.Note = checked.Fatal
		return endRound(t.Record, Ending{
			Cause: lifecycle.CauseCheck, Container: firstEssential(t.def), Problem: checked.Fatal,
		})
	}
	if i := t.Containers.due(t.def); i >= 0 {
		if t.Containers[i].Progress == Waiting {
			return Step{Do: Prepare, Container: i}, true // of an adopted attempt
		}
		if t.Desired.Batch() && t.Started.IsZero() && t.barrierStale() {
			t.Phase = PhaseBarrier
			return Step{}, false
		}
		t.intend(i)
		return Step{Do: Launch, Container: i}, true
	}
	if t.Up == 0 && t.Containers.allUp(t.def) {
		t.Up = t.now.Boot
		return Step{}, false
	}
	if t.Health == cluster.HealthHealthy {
		t.Crash, t.Renewal = nil, ""
	}
	wait := Step{Do: Wait, At: sooner(limit, judgeAgain)}
	if t.Through != 0 && !t.def.HasCheck(cluster.MeaningReadiness) && t.Health == cluster.HealthUnknown {
		minHealthy := time.Duration(cmp.Or(t.def.MinHealthyTime, cluster.DefaultMinHealthyTime))
		health, rest := lifecycle.HealthWithoutChecks(minHealthy, t.now.Boot-t.Through)
		if rest == 0 {
			t.Health = health
			return Step{}, false
		}
		wait.At = sooner(wait.At, t.now.Boot+rest)
	}
	return wait, true
}

// intend records the intent to launch.
func (t *transition) intend(i int) {
	t.Containers[i].Progress = Launched
	if t.Begun == 0 {
		t.Begun = t.now.Boot
	}
	if t.RoundBegun == 0 {
		t.RoundBegun = t.now.Boot
	}
}

// limitAt returns when the time limit is reached, or 0.
func (t *transition) limitAt() time.Duration {
	if t.Desired.TimeLimit <= 0 || t.Begun == 0 {
		return 0
	}
	return t.Begun + time.Duration(t.Desired.TimeLimit)
}

// ending sends TERM, KILL after the grace period, and KILL again at intervals, until no container lives.
func (t *transition) ending() (Step, bool) {
	e := t.Ending
	running := false
	for i := range t.Containers {
		switch t.Containers[i].Progress {
		case Launched:
			return Step{Do: Discard, Container: i}, true
		case Running:
			running = true
		case Waiting, Prepared, Exited:
		}
	}
	if !running {
		t.settle()
		return Step{}, false
	}
	grace := time.Duration(cluster.DefaultGrace)
	if t.def != nil && t.def.Grace != 0 {
		grace = time.Duration(t.def.Grace)
	}
	if e.Term == 0 && t.mustLeave() {
		return Step{Do: Leave}, true
	}
	if e.Term == 0 {
		e.Term = t.now.Boot
	}
	kill := e.Term + grace
	switch {
	case t.now.Boot < kill && !e.Termed:
		return Step{Do: Signal, Signal: syscall.SIGTERM}, true
	case t.now.Boot < kill:
		return Step{Do: Wait, At: kill}, true
	case e.Kill == 0:
		e.Kill = t.now.Boot
	}
	give := e.Kill + UnkillableAfter
	if t.now.Boot >= give {
		e.Unkillable = true
		t.Note = "still running " + (t.now.Boot - e.Kill).Round(time.Second).String() + " after KILL"
	}
	if e.Killed == 0 || t.now.Boot >= e.Killed+UnkillableAfter {
		return Step{Do: Signal, Signal: syscall.SIGKILL}, true
	}
	return Step{Do: Wait, At: e.Killed + UnkillableAfter}, true
}

// backoff waits, then begins another round with new container IDs.
func (t *transition) backoff() (Step, bool) {
	if t.stop() != nil {
		t.stopped()
		return Step{}, false
	}
	if c := t.Crash; c != nil && !c.Read {
		return Step{Do: Tail, Container: c.Container}, true
	}
	if t.now.Boot < t.NotBefore {
		return Step{Do: Wait, At: t.NotBefore}, true
	}
	renewal := t.Ending != nil && t.Ending.Cause == lifecycle.CauseRenewal
	t.Round++
	t.Phase, t.Ending = PhasePreparing, nil
	t.RoundBegun, t.Up, t.NotBefore, t.Rebooted, t.Note = 0, 0, 0, false, ""
	t.Through, t.Healthy, t.Left, t.CheckResults = 0, 0, 0, nil
	for i := range t.Containers {
		c := &t.Containers[i]
		if c.begun() && !renewal {
			c.Restarts++
		}
		*c = Container{
			ID: RunID(t.Desired.UUID, i, t.Round), Old: append(c.Old, c.ID),
			Exit: c.Exit, Restarts: c.Restarts, OOMs: c.OOMs,
		}
	}
	return Step{}, false
}

// mustLeave reports whether the attempt may have registrations for service discovery that have to go before TERM.
func (t *transition) mustLeave() bool { return t.def.UsesConsul() && t.Healthy != 0 && t.Left == 0 }

// noteShown records when the round was first healthy, and since when the shown state has its value.
func (t *transition) noteShown() {
	if t.Phase == PhaseRunning && t.Health == cluster.HealthHealthy && t.Healthy == 0 {
		t.Healthy = t.now.Boot
	}
	state, health := stateOf(t.Record), t.Health
	if state != cluster.StateRunning {
		health = ""
	}
	if state != t.Shown.State || health != t.Shown.Health {
		t.Shown.State, t.Shown.Health, t.Since = state, health, t.now.Wall
	}
}

package attempt

import (
	"slices"
	"syscall"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/lifecycle"
)

// Do is the kind of a step.
type Do string

// Steps. After each step the caller reports the result to the record with the method named here.
const (
	// Wait waits for an event, or until At unless that is 0.
	Wait Do = "wait"
	// Admit asks whether the node can take the attempt: Admitted or Reject.
	Admit Do = "admit"
	// Prepare makes Container after removing its Old runs: WasPrepared, PrepareFailed or Reject.
	Prepare Do = "prepare"
	// ProbePorts checks whether the attempt's ports are free: PortsProbed or Reject.
	ProbePorts Do = "probe-ports"
	// Launch makes the record durable and then starts Container: WasStarted. After a failure the caller ensures that
	// nothing runs and reports StartFailed, or StartInDoubt if the program may have run. Next returns Launch again
	// until one of these is reported.
	Launch Do = "launch"
	// Discard removes Container after a start without a result: WasDiscarded.
	Discard Do = "discard"
	// Use makes the record durable, with the used permit for the attempt's stop: PermitKept.
	Use Do = "use-permit"
	// Signal makes the record durable and then sends Signal to all live containers: Signalled.
	Signal Do = "signal"
	// Close reads the end of the log of Container: Closed.
	Close Do = "close"
	// Tail reads the same for an attempt that restarts, before its next round: Tailed.
	Tail Do = "tail"
	// Clear removes all containers and directories of the attempt: Cleared.
	Clear Do = "clear"
)

// Step is the next thing to do.
type Step struct {
	Do        Do
	Container int
	Signal    syscall.Signal
	At        time.Duration // Boot
}

// Defaults of a definition's settings that are 0.
const (
	defaultGrace      = 10 * time.Second
	defaultMinHealthy = time.Second
	defaultLimit      = 5
	defaultWindow     = 10 * time.Minute
	defaultDelay      = time.Second
	defaultMaxDelay   = time.Minute
)

// Next moves the record as far as possible without a caller, and returns the next step. A nil definition means that the
// agent does not have it: a new attempt is rejected, and one that has begun waits for it.
func (r *Record) Next(def *cluster.TaskDefinition, now Now) Step {
	if def == nil && r.Phase != PhaseNew && !r.Terminal() {
		return Step{Do: Wait}
	}
	for {
		step, ok := r.permit(now)
		if !ok {
			step, ok = r.move(def, now)
		}
		if ok {
			r.noteShown(now)
			return step
		}
	}
}

// move makes one move; ok means that step must be done before the next move.
func (r *Record) move(def *cluster.TaskDefinition, now Now) (step Step, ok bool) {
	switch r.Phase {
	case PhaseNew:
		return r.newAttempt(def, now)
	case PhasePreparing:
		return r.preparing()
	case PhaseBarrier:
		return r.barrier(now)
	case PhaseRunning:
		return r.running(def, now)
	case PhaseEnding:
		return r.ending(def, now)
	case PhaseBackoff:
		return r.backoff(now)
	case PhaseClosing:
		return Step{Do: Close, Container: r.blamedContainer()}, true
	case PhaseEnded:
		if r.Desired.Ended() {
			return Step{Do: Clear}, true
		}
	case PhaseGone:
	}
	return Step{Do: Wait}, true
}

func (r *Record) newAttempt(def *cluster.TaskDefinition, now Now) (Step, bool) {
	switch {
	case r.stop() != nil:
		r.stopped(now)
		return Step{}, false
	case def == nil:
		r.end(Result{
			cluster.StateRejected, cluster.ReasonNoDefinition,
			"the node was not told the definition " + r.Desired.Definition.String(),
		}, now)
		return Step{}, false
	}
	return Step{Do: Admit}, true
}

func (r *Record) preparing() (Step, bool) {
	if r.stop() != nil {
		r.Ending = &Ending{Cause: lifecycle.CauseStop, Container: -1}
		r.Phase = PhaseEnding
		return Step{}, false
	}
	for i := range r.Containers {
		if r.Containers[i].Progress == Waiting {
			return Step{Do: Prepare, Container: i}, true
		}
	}
	if !r.PortsFree {
		return Step{Do: ProbePorts}, true
	}
	r.Note = ""
	r.Phase = PhaseRunning
	if r.Desired.Batch() && r.Started.IsZero() {
		r.Phase = PhaseBarrier
	}
	return Step{}, false
}

// barrier waits for the answer, and asks again if the answer is too old to start by (P4.3).
func (r *Record) barrier(now Now) (Step, bool) {
	switch {
	case r.stop() != nil:
		r.Ending = &Ending{Cause: lifecycle.CauseStop, Container: -1}
		r.Phase = PhaseEnding
		return Step{}, false
	case r.Barrier.Passed == 0:
		return Step{Do: Wait}, true
	case r.barrierStale(now):
		r.Barrier = Barrier{Ask: r.Barrier.Ask + 1}
		return Step{}, false
	}
	r.Phase = PhaseRunning
	return Step{}, false
}

// barrierStale reports whether the passed barrier is too old for user code to start by.
func (r *Record) barrierStale(now Now) bool {
	return r.Barrier.Passed == 0 || now.Boot-r.Barrier.Passed > BarrierAge
}

// running launches the containers that are due and detects the end of the round.
func (r *Record) running(def *cluster.TaskDefinition, now Now) (Step, bool) {
	limit := r.limitAt()
	checked, look := r.judge(def, now)
	switch {
	case r.stop() != nil:
		if at := r.lingerUntil(def); at > now.Boot && r.endingContainer(def) < 0 {
			return Step{Do: Wait, At: at}, true
		}
		return r.endRound(Ending{Cause: lifecycle.CauseStop, Container: -1})
	case limit != 0 && now.Boot >= limit:
		return r.endRound(Ending{Cause: lifecycle.CauseTimeLimit, Container: -1})
	}
	if i := r.endingContainer(def); i >= 0 {
		return r.endRound(Ending{Cause: lifecycle.CauseExit, Container: i})
	}
	if checked.Fatal != "" {
		r.Note = checked.Fatal
		return r.endRound(Ending{Cause: lifecycle.CauseCheck, Container: firstEssential(def), Problem: checked.Fatal})
	}
	if i := r.dueContainer(def); i >= 0 {
		if r.Containers[i].Progress == Waiting {
			return Step{Do: Prepare, Container: i}, true // of an adopted attempt
		}
		if r.Desired.Batch() && r.Started.IsZero() && r.barrierStale(now) {
			r.Phase = PhaseBarrier
			return Step{}, false
		}
		r.intend(i, now)
		return Step{Do: Launch, Container: i}, true
	}
	if r.Up == 0 && r.allUp(def) {
		r.Up = now.Boot
		return Step{}, false
	}
	if r.Health == cluster.HealthHealthy {
		r.Crash, r.Renewal = nil, ""
	}
	wait := Step{Do: Wait, At: sooner(limit, look)}
	if r.Through != 0 && !def.HasCheck(cluster.MeaningReadiness) && r.Health == cluster.HealthUnknown {
		minHealthy := orDefault(def.MinHealthyTime, defaultMinHealthy)
		health, rest := lifecycle.HealthWithoutChecks(minHealthy, now.Boot-r.Through)
		if rest == 0 {
			r.Health = health
			return Step{}, false
		}
		wait.At = sooner(wait.At, now.Boot+rest)
	}
	return wait, true
}

// intend records the intent to launch.
func (r *Record) intend(i int, now Now) {
	r.Containers[i].Progress = Launched
	if r.Begun == 0 {
		r.Begun = now.Boot
	}
	if r.RoundBegun == 0 {
		r.RoundBegun = now.Boot
	}
}

// limitAt returns when the time limit is reached, or 0.
func (r *Record) limitAt() time.Duration {
	if r.Desired.TimeLimit <= 0 || r.Begun == 0 {
		return 0
	}
	return r.Begun + time.Duration(r.Desired.TimeLimit)
}

// dueContainer returns the container to launch now, or -1. A container whose start had no result is due again.
func (r *Record) dueContainer(def *cluster.TaskDefinition) int {
	for i := range r.Containers {
		if c := &r.Containers[i]; def.Containers[i].Init && c.Progress != Exited {
			if c.Progress == Running {
				return -1
			}
			return i
		}
	}
	first := -1
	for i := range r.Containers {
		c := &r.Containers[i]
		if def.Containers[i].Init || c.Progress == Running || c.Progress == Exited {
			continue
		}
		if r.afterMet(def, i) {
			return i
		}
		if first < 0 {
			first = i
		}
	}
	if first >= 0 && !r.MayRun() {
		return first // a cycle in after, which validation refuses
	}
	return -1
}

// afterMet reports whether all containers that container i starts after have been started.
func (r *Record) afterMet(def *cluster.TaskDefinition, i int) bool {
	for _, before := range def.Containers[i].After {
		j := slices.IndexFunc(def.Containers, func(c cluster.Container) bool { return c.Name == before })
		if j >= 0 && j != i && r.Containers[j].Progress != Running && r.Containers[j].Progress != Exited {
			return false
		}
	}
	return true
}

func (r *Record) allUp(def *cluster.TaskDefinition) bool {
	for i := range r.Containers {
		if p := r.Containers[i].Progress; !def.Containers[i].Init && p != Running && p != Exited {
			return false
		}
	}
	return true
}

// endingContainer returns the container whose end ends the round, or -1: a failed init container, an essential one, or
// the last one where none is essential.
func (r *Record) endingContainer(def *cluster.TaskDefinition) int {
	last, left, essential := -1, false, false
	for i := range r.Containers {
		c, d := &r.Containers[i], &def.Containers[i]
		switch {
		case d.Init:
			if c.Progress == Exited && !c.succeeded() {
				return i
			}
			left = left || c.Progress != Exited
		case c.Progress != Exited:
			left = true
			essential = essential || !d.Optional
		case !d.Optional:
			last, essential = r.earlier(last, i), true
		case last < 0 || def.Containers[last].Optional:
			last = i
		}
	}
	switch {
	case last < 0:
		return -1
	case !def.Containers[last].Optional:
		return last
	case left || essential:
		return -1
	}
	return last
}

// earlier returns the container that ended first.
func (r *Record) earlier(i, j int) int {
	if i < 0 || r.Containers[i].Exit == nil || r.Containers[j].Exit == nil {
		return j
	}
	if r.Containers[j].Exit.At.Before(r.Containers[i].Exit.At) {
		return j
	}
	return i
}

func (c *Container) succeeded() bool { return c.Refused == "" && c.Exit != nil && c.Exit.Success() }

func (r *Record) endRound(e Ending) (Step, bool) {
	r.Ending, r.Phase, r.Health = &e, PhaseEnding, cluster.HealthUnknown
	return Step{}, false
}

// ending sends TERM, KILL after the grace period, and KILL again at intervals, until no container lives.
func (r *Record) ending(def *cluster.TaskDefinition, now Now) (Step, bool) {
	e := r.Ending
	running := false
	for i := range r.Containers {
		switch r.Containers[i].Progress {
		case Launched:
			return Step{Do: Discard, Container: i}, true
		case Running:
			running = true
		case Waiting, Prepared, Exited:
		}
	}
	if !running {
		r.settle(def, now)
		return Step{}, false
	}
	grace := defaultGrace
	if def != nil {
		grace = orDefault(def.Grace, defaultGrace)
	}
	if e.Term == 0 {
		e.Term = now.Boot
	}
	kill := e.Term + grace
	switch {
	case now.Boot < kill && !e.Termed:
		return Step{Do: Signal, Signal: syscall.SIGTERM}, true
	case now.Boot < kill:
		return Step{Do: Wait, At: kill}, true
	case e.Kill == 0:
		e.Kill = now.Boot
	}
	give := e.Kill + UnkillableAfter
	if now.Boot >= give {
		e.Unkillable = true
		r.Note = "lives " + (now.Boot - e.Kill).Round(time.Second).String() + " after KILL"
	}
	if e.Killed == 0 || now.Boot >= e.Killed+UnkillableAfter {
		return Step{Do: Signal, Signal: syscall.SIGKILL}, true
	}
	return Step{Do: Wait, At: e.Killed + UnkillableAfter}, true
}

// backoff waits, then begins another round with new container IDs.
func (r *Record) backoff(now Now) (Step, bool) {
	if r.stop() != nil {
		r.stopped(now)
		return Step{}, false
	}
	if c := r.Crash; c != nil && !c.Read {
		return Step{Do: Tail, Container: c.Container}, true
	}
	if now.Boot < r.NotBefore {
		return Step{Do: Wait, At: r.NotBefore}, true
	}
	renewal := r.Ending != nil && r.Ending.Cause == lifecycle.CauseRenewal
	r.Round++
	r.Phase, r.Ending = PhasePreparing, nil
	r.RoundBegun, r.Up, r.NotBefore, r.Rebooted, r.Note = 0, 0, 0, false, ""
	r.Through, r.Looks = 0, nil
	for i := range r.Containers {
		c := &r.Containers[i]
		if c.begun() && !renewal {
			c.Restarts++
		}
		*c = Container{
			ID: RunID(r.Desired.UUID, i, r.Round), Old: append(c.Old, c.ID),
			Exit: c.Exit, Restarts: c.Restarts, OOMs: c.OOMs,
		}
	}
	return Step{}, false
}

// noteShown records since when the shown state has its value.
func (r *Record) noteShown(now Now) {
	state, health := r.state(), r.Health
	if state != cluster.StateRunning {
		health = ""
	}
	if state != r.Shown.State || health != r.Shown.Health {
		r.Shown.State, r.Shown.Health, r.Since = state, health, now.Wall
	}
}

func orDefault(d cluster.Duration, standard time.Duration) time.Duration {
	if d <= 0 {
		return standard
	}
	return time.Duration(d)
}

// sooner returns the earlier of two times; 0 means no time.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

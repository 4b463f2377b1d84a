package attempt

import (
	"syscall"
	"time"

	"github.com/berthd/berth/internal/cluster"
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
	// Leave removes the registrations of the attempt for service discovery, within a bound: HasLeft. It never fails.
	Leave Do = "leave"
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

// Next moves the record as far as possible without a caller, and returns the next step. A nil definition means that the
// agent does not have it: a new attempt is rejected, and one that has begun waits for it.
func (r *Record) Next(def *cluster.TaskDefinition, now Now) Step {
	if def == nil && r.Phase != PhaseNew && !r.Terminal() {
		return Step{Do: Wait}
	}
	t := transition{r, def, now}
	for {
		step, ok := t.permit()
		if !ok {
			step, ok = t.move()
		}
		if ok {
			t.noteShown()
			return step
		}
	}
}

func endRound(r *Record, e Ending) (Step, bool) {
	r.Ending, r.Phase, r.Health = &e, PhaseEnding, cluster.HealthUnknown
	return Step{}, false
}

// sooner returns the earlier of two times; 0 means no time.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

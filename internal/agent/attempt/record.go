// Package attempt is one numbered try of a task on this node: the record that an agent keeps of it, and the rules by
// which it moves.
//
// An attempt begins with an assignment. It is admitted, its containers are prepared, and its ports are probed. A batch
// attempt then waits at the start barrier (P4.3). Then its containers are launched: the init containers one after the
// other, the main ones by their order. When an essential container ends, the others are ended too. The attempt then
// either backs off and runs another round on this node (P4.5) or has ended. An ended attempt is kept whole until its
// outcome is durable (P4.6); then it is cleared and gone.
//
//	new → preparing → barrier → running → ending → closing → ended → gone
//	          ↑                              │
//	          └────────── backoff ◀──────────┘
//
// Record.Next returns the one step to do now. The caller does it, reports the result with one of the record's other
// methods, and asks again. The package never waits, reads a clock or touches the machine. A record that was written as
// JSON and read again continues where it was.
//
// Times named Boot are on the machine's boot-time clock (P9.1) and are never 0; 0 means "not yet".
package attempt

import (
	"strconv"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/logic/lifecycle"
)

// Phase is the position of an attempt in its life on the node.
type Phase string

// Phases, in the order of the life.
const (
	PhaseNew       Phase = "new"       // not admitted yet
	PhasePreparing Phase = "preparing" // the containers of a round are being made
	PhaseBarrier   Phase = "barrier"   // prepared; batch waits for its start barrier
	PhaseRunning   Phase = "running"   // containers are launched and run
	PhaseEnding    Phase = "ending"    // the remaining containers are being ended
	PhaseBackoff   Phase = "backoff"   // waits for the next round
	PhaseClosing   Phase = "closing"   // ended; the end of its log is being read
	PhaseEnded     Phase = "ended"     // terminal, kept until the outcome is durable
	PhaseGone      Phase = "gone"      // nothing is left on the node
)

// Progress is the progress of one container in the current round.
type Progress string

// Progress of a container.
const (
	Waiting  Progress = ""          // not made yet
	Prepared Progress = "prepared"  // made; its program never ran
	Launched Progress = "launching" // the intent is durable: its program may run (P4.4)
	Running  Progress = "running"
	Exited   Progress = "exited"
)

// Container is one container of the attempt, in its newest run.
type Container struct {
	// ID names the run for the executor. Old are the runs of earlier rounds that are still to be removed.
	ID       executor.ID      `json:"id"`
	Old      []executor.ID    `json:"old,omitempty"`
	Progress Progress         `json:"progress,omitempty"`
	Process  executor.Process `json:"process,omitzero"`
	// Exit is the newest exit, possibly of the round before.
	Exit *cluster.Exit `json:"exit,omitempty"`
	// Refused is the executor's error of a failed Start. Exit is unknown then if the program may have run.
	Refused  string `json:"refused,omitempty"`
	Restarts int    `json:"restarts,omitempty"`
	OOMs     int    `json:"ooms,omitempty"`
}

// live reports whether the program may run.
func (c *Container) live() bool { return c.Progress == Launched || c.Progress == Running }

// begun reports whether the program ran, runs, or may run.
func (c *Container) begun() bool { return c.live() || c.Progress == Exited }

// Barrier is the start barrier of a batch attempt.
type Barrier struct {
	// Ask counts the requests; each new one makes a report.
	Ask int `json:"ask,omitempty"`
	// Passed is when the request with the passing answer was sent (Boot).
	Passed time.Duration `json:"passed,omitempty"`
}

// BarrierAge is how old a passed barrier may be when user code starts (P4.3).
const BarrierAge = 30 * time.Second

// UnkillableAfter is how long a container may live after KILL until the attempt counts as unkillable.
const UnkillableAfter = 2 * time.Minute

// Ending is the end of a round.
type Ending struct {
	Cause lifecycle.Cause `json:"cause"`
	// Container is the index of the container that ended first, for CauseCheck of the one whose log is shown, or -1.
	Container int `json:"container"`
	// Term and Kill are when the signals were due (Boot); the executor may have failed to send them then.
	Term time.Duration `json:"term,omitempty"`
	Kill time.Duration `json:"kill,omitempty"`
	// Termed means that TERM was sent. Killed is when KILL was last sent (Boot).
	Termed bool          `json:"termed,omitempty"`
	Killed time.Duration `json:"killed,omitempty"`
	// Unkillable means that a container lives long after KILL.
	Unkillable bool `json:"unkillable,omitempty"`
	// Problem is the message of CausePrepare, CauseNoProgram, CauseBarrier, CauseCheck and CauseRenewal.
	Problem string `json:"problem,omitempty"`
}

// Result is how the attempt ended.
type Result struct {
	State   cluster.State      `json:"state"`
	Reason  cluster.ReasonCode `json:"reason,omitempty"`
	Message string             `json:"message,omitempty"`
}

// Crash is the end of a round after which the attempt is restarted in place.
type Crash struct {
	Reason  cluster.ReasonCode `json:"reason,omitempty"`
	Message string             `json:"message"`
	// Container is the container to blame, or -1. Tail is the end of its output; Read means that the output was read.
	Container int    `json:"container"`
	Tail      string `json:"tail,omitempty"`
	Read      bool   `json:"read,omitempty"`
}

// MaxCrashTail limits the output that is reported with a restarting task, in bytes.
const MaxCrashTail = 1024

// Record is all that an agent knows of one attempt. The agent persists it as JSON. The intent to launch (Progress
// Launched) and an accepted stop must be durable before the agent acts on them.
//
// A Record is not for concurrent use.
type Record struct {
	// Desired is the newest accepted assignment. Revision is the revision of its record.
	Desired  cluster.Desired `json:"desired"`
	Revision uint64          `json:"rev"`
	// Boot names the boot of the machine that the times belong to.
	Boot  string `json:"boot"`
	Phase Phase  `json:"phase"`
	// Executor is the name of the executor that holds the containers.
	Executor string `json:"executor,omitempty"`
	// Round counts from 1; each restart in place begins another round.
	Round      int        `json:"round"`
	Containers Containers `json:"containers,omitempty"`
	PortsFree  bool       `json:"ports_free,omitempty"` // the ports were probed
	Barrier    Barrier    `json:"barrier,omitzero"`
	Times
	// CheckResults are the results of the checks of the round, in the order of the definition; nil before the first
	// result.
	CheckResults []lifecycle.CheckRecord `json:"looks,omitempty"`
	// TTLWindow is when updates of ttl checks could have arrived.
	TTLWindow lifecycle.TTLWindow `json:"-"`
	Ending    *Ending             `json:"ending,omitempty"`
	// Restarts are the restarts in place; their times are Boot, as times since the epoch.
	Restarts lifecycle.Restarts `json:"restarts,omitzero"`
	// NotBefore is when the next round begins (Boot).
	NotBefore time.Duration `json:"not_before,omitempty"`
	// Permit is the permit for a voluntary stop. Session is the agent's newest session; asks of earlier sessions are
	// void.
	Permit  Permit  `json:"permit,omitzero"`
	Session Session `json:"-"`
	History
	Reported
}

// Times are when the attempt reached the stages of its life (Boot).
type Times struct {
	// Begun is when the first container of the attempt was launched. RoundBegun is the same for the round. Up is when
	// all main containers of the round were launched (Boot).
	Begun      time.Duration `json:"begun,omitempty"`
	RoundBegun time.Duration `json:"round_begun,omitempty"`
	Up         time.Duration `json:"up,omitempty"`
	// Through is when all startup checks of the round had succeeded (Boot); without startup checks it is Up.
	Through time.Duration `json:"through,omitempty"`
	// Healthy is when the round was first healthy (Boot). Left is when its registrations for service discovery were
	// removed before its end (Boot).
	Healthy time.Duration `json:"healthy,omitempty"`
	Left    time.Duration `json:"left,omitempty"`
}

// History is how the last round and the attempt ended.
type History struct {
	// Rebooted means that the machine rebooted while containers ran.
	Rebooted bool `json:"rebooted,omitempty"`
	// Crash is the end of the last round, until the attempt is healthy again.
	Crash *Crash `json:"crash,omitempty"`
	// Renewal is the reason of the last renewal, until the attempt is healthy again.
	Renewal string  `json:"renewal,omitempty"`
	Result  *Result `json:"result,omitempty"`
}

// Reported is the part of a record that reports show as it is.
type Reported struct {
	Health   cluster.Health `json:"health,omitempty"`
	Started  time.Time      `json:"started,omitzero"`
	Finished time.Time      `json:"finished,omitzero"`
	Since    time.Time      `json:"since,omitzero"`
	// NextStart is when the next round begins, as the wall clock had it at the end of the last one. It counts in
	// PhaseBackoff only; zero for a round that begins immediately.
	NextStart time.Time `json:"next_start,omitzero"`
	LogTail   string    `json:"log_tail,omitempty"`
	// Note describes the current activity in a few words.
	Note string `json:"note,omitempty"`
	// Shown is the state that Since refers to.
	Shown Shown `json:"shown,omitzero"`
}

// Shown is the reported state; the health counts while the task runs.
type Shown struct {
	State  cluster.State  `json:"state,omitempty"`
	Health cluster.Health `json:"health,omitempty"`
}

// Now is the time of a step, on both clocks.
type Now struct {
	Boot time.Duration
	Wall time.Time
}

// New returns the record of a new assignment.
func New(desired cluster.Desired, revision uint64, boot string) *Record {
	return &Record{
		Desired: desired, Revision: revision, Boot: boot,
		Phase: PhaseNew, Round: 1, Reported: Reported{Health: cluster.HealthUnknown},
	}
}

// Update takes a newer assignment of the same attempt and reports whether it was newer. It refuses an assignment with a
// lower token, or with the same token and no higher revision (P6.6), so late and repeated messages change nothing. A
// stop is never withdrawn, and a mandatory stop stays mandatory.
func (r *Record) Update(desired *cluster.Desired, revision uint64) bool {
	order := desired.Token.Compare(r.Desired.Token)
	if desired.UUID != r.Desired.UUID || order < 0 || order == 0 && revision <= r.Revision {
		return false
	}
	r.Revision = revision
	r.Desired.Token = desired.Token
	r.Desired.Priority, r.Desired.RequestCounter = desired.Priority, desired.RequestCounter
	if s := desired.Stop; s != nil {
		stop := *s
		stop.Ended = stop.Ended || r.Desired.Ended()
		if old := r.Desired.Stop; old != nil {
			voluntary := s.Class == cluster.StopVoluntary
			if voluntary || old.Class != cluster.StopVoluntary {
				stop.Class = old.Class
			}
			if !old.Ended && (voluntary || r.stop() != nil) {
				stop.Reason, stop.Message = old.Reason, old.Message // the first reason stays
			}
		}
		r.Desired.Stop = &stop
	}
	return true
}

// MayRun reports whether a program of the attempt runs or may run.
func (r *Record) MayRun() bool { return r.Containers.MayRun() }

// Terminal reports whether the attempt has ended on this node permanently.
func (r *Record) Terminal() bool { return r.Phase == PhaseEnded || r.Phase == PhaseGone }

// AtBarrier reports whether the attempt waits for an answer to its start barrier.
func (r *Record) AtBarrier() bool { return r.Phase == PhaseBarrier && r.Barrier.Passed == 0 }

// IsUp reports whether all main containers were launched and the round continues. Checks run only then.
func (r *Record) IsUp() bool { return r.Phase == PhaseRunning && r.Up != 0 }

// IsRegistered reports whether the attempt is to be registered for service discovery: the round was healthy once, and
// nothing ends it. A nil definition means that the agent does not have it.
func (r *Record) IsRegistered(def *cluster.TaskDefinition) bool {
	return def != nil && def.UsesConsul() && r.IsUp() && r.Healthy != 0 && r.Left == 0 && r.stop() == nil
}

// name returns the name of a container, or its number if the definition is unknown.
func name(def *cluster.TaskDefinition, i int) string {
	if def == nil || i < 0 || i >= len(def.Containers) {
		return strconv.Itoa(i)
	}
	return def.Containers[i].Name
}

// RunID returns the name of one run of one container. It has at most 76 bytes for a UUID of at most 60.
func RunID(uuid string, container, round int) executor.ID {
	return executor.ID(uuid + "-" + strconv.Itoa(container) + "-" + strconv.Itoa(round))
}

// Package reconciler compares what owners want with what their tasks are and says what is to be done: desired
// minus observed, as data.
//
// An owner is a service or a job. Its tasks have ids that follow from its spec, so a
// task that waits is stored nowhere: it is one that is wanted and has no records. A task has numbered attempts, of
// which at most one has no outcome; attempt n+1 is asked for only from a state that holds
// the outcome of attempt n (P3.7).
//
// Service and Job are pure functions, one call for each owner. They may be called again
// at any time with whatever the tables hold: what was done already is not asked for again. The caller commits
// each Stop, Conclusion and Cleanup as a group of its own, comparing the revisions in it, and hands
// Pending to the scheduler.
//
// These decisions are made here, and nowhere else:
//
//   - A service keeps Count tasks running, a daemon one on each of its nodes. A task that ended, well or badly, is
//     followed by a new attempt, until it failed too often; work that ends is a job's.
//   - A rollout replaces a few tasks at a time: of the old versions it keeps as many of the best tasks as the new one
//     has not yet replaced by healthy ones. It is complete, or it fails and goes back (see rollout).
//   - A healthy task is given up only while the service keeps as many as its update policy demands: when the stop is
//     wished for, and again when its agent asks to carry it out (see budget, permit).
//   - A job with a task that has no retries left starts nothing any more; what runs is let finish.
//   - A service's task leaves a node that is emptied, or that it is to leave for another reason, once its next attempt
//     is healthy elsewhere; a job's ends there, or at once. What is preempted ends first.
//   - An attempt that runs and that the store does not know is adopted where its owner wants it, else stopped.
package reconciler

import (
	"time"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
)

// Task is one attempt of a task, with what the watcher knows of its node.
type Task struct {
	cluster.Attempt
	Absence watcher.Absence
	// Drain, unless nil, says that the attempt's node is to be emptied.
	Drain *cluster.Drain
	// Leave, unless nil, says that the attempt is to leave its node, though that is itself well and is not emptied.
	Leave *Leave
	// Reported says that the node was heard by this leader and that its full report is in: what has no status does not
	// run there, and what is healthy counts when others are given up.
	Reported bool
}

// Recovery is what a decision has to know of a store that went back (P1.7). The zero value is for one that never did.
type Recovery struct {
	// Incarnation is the store's. An attempt that was placed under an earlier one and is unknown on its node has ended
	// there.
	Incarnation uint64
	// StopBefore, unless zero, is before when an attempt that the store does not know must have begun to be stopped
	// rather than adopted: the operator said so then.
	StopBefore time.Time
}

// Definitions finds a version of a task definition, or returns nil.
type Definitions func(cluster.Ref) *cluster.TaskDefinition

// ServiceInput is all that a decision about a service looks at.
type ServiceInput struct {
	// Owner is the service; Spec is nil when its record is gone and tasks of it are left.
	Owner cluster.OwnerRef
	// Its count is what scaling made of it, see Snapshot.Wanted.
	Spec    *cluster.Service
	SpecRev uint64
	// Rollout is where the newest version stands, nil before anything is known of it; RolloutRev is its revision.
	Rollout    *cluster.Rollout
	RolloutRev uint64
	// Gates are the results of the spec's gates, in its order; a gate that was not looked at has neither passes nor
	// failures.
	Gates []cluster.GateResult
	// Nodes are, for a daemon, the names of the nodes that should have a task of it, ordered: they are known, not gone,
	// and meet its constraints and its cluster's. One that is silent is among them only while a record of the service's
	// tasks stands there. For services with replicas it is nil.
	Nodes []string
	// Alone holds, for a daemon, the nodes that are to be emptied and where nothing but daemons' tasks stands: its own
	// ends there too, and none is begun.
	Alone map[string]bool
	// Definitions finds those of all generations that still have tasks.
	Definitions Definitions
	// Tasks are all attempts of the owner, of all generations, in any order; an attempt that has an outcome
	// and no other record is among them.
	Tasks []Task
	// ClusterConstraints hold for every task of the owner's cluster.
	ClusterConstraints []cluster.Constraint
	Recovery           Recovery
	// Since, unless zero, is before when deadlines did not run: the wall clock was set then, or another began to lead
	// (P9.1).
	Since time.Time
	Now   time.Time
	// Without switches clauses off, in tests only.
	Without clause.Set
}

// JobInput is all that a decision about a job looks at. The fields are as in ServiceInput.
type JobInput struct {
	Owner              cluster.OwnerRef
	Spec               *cluster.Job
	SpecRev            uint64
	Definitions        Definitions
	Tasks              []Task
	ClusterConstraints []cluster.Constraint
	Recovery           Recovery
	// Keep is for how long the job is kept after its end; 0 is for ever.
	Keep time.Duration
	Now  time.Time
}

// Decision is what is to be done for an owner. Every list is ordered by task and attempt.
type Decision struct {
	// Pending are tasks that should run and are not placed.
	Pending []cluster.Pending
	// Moves are tasks that should leave their node, each once there is a place for it.
	Moves []Move
	// Stops turn desired records of live attempts into stops.
	Stops []Stop
	// Adoptions write the desired records of attempts that run and have none.
	Adoptions []Adoption
	// Conclusions write the outcomes of attempts that have ended.
	Conclusions []Conclusion
	// Cleanups delete the records of attempts that have an outcome and of which nothing is left on a node.
	Cleanups []Cleanup
	// Trims delete outcomes that nothing needs any more.
	Trims []Trim
	// Rollout, unless nil, is the new record of where the newest version stands.
	Rollout *RolloutWrite
	// Revert, unless nil, asks for an earlier version again.
	Revert *Revert
	// Expire asks for the deletion of a job that has been kept for long enough since its end. It compares the spec's
	// revision.
	Expire bool
	// Remove asks for the deletion of the owner's spec: it is deleted and nothing of it runs.
	Remove bool
	// Events tell what the decision as a whole means, such as the end of a job. They are true once
	// all Conclusions are committed; if one is refused they come again with a later decision.
	Events []cluster.Event
	// Waits are what stops, batches and tasks of a service wait for, for people: see Waits.
	Waits []Wait
	// Message says in a sentence why the owner is not as desired; empty when it is.
	Message string
	// NextLook is when to decide again even if nothing changes; zero for never.
	NextLook time.Time
}

// Empty reports whether there is nothing to write and nothing to place.
func (d *Decision) Empty() bool {
	return len(d.Pending) == 0 && len(d.Moves) == 0 && len(d.Stops) == 0 && len(d.Adoptions) == 0 &&
		len(d.Conclusions) == 0 && len(d.Cleanups) == 0 &&
		len(d.Trims) == 0 && d.Rollout == nil && d.Revert == nil && !d.Expire && !d.Remove
}

// look asks for another decision at t, if no earlier one is asked for.
func (d *Decision) look(t time.Time) {
	if d.NextLook.IsZero() || t.Before(d.NextLook) {
		d.NextLook = t
	}
}

// RolloutWrite is a service's rollout record to be written. It compares the record's revision and the spec's.
type RolloutWrite struct {
	Record  cluster.Rollout
	Rev     uint64 // 0: there is none yet
	SpecRev uint64
	Events  []cluster.Event
}

// Revert takes a failed rollout back: the service's spec is written again with the next generation and an earlier
// definition, as if the user had asked for it. It compares the spec's revision, and stands in one transaction with the
// rollout record.
type Revert struct {
	Definition cluster.Ref
	Failed     uint64 // the generation that failed
	SpecRev    uint64
}

// Stop is a desired record to be written: a stop, or the permit for one.
type Stop struct {
	// Desired is the whole record, with its Stop; the token is the committer's to renew.
	Desired cluster.Desired
	// Rev is the revision of the desired record to compare; 0 means that the record does not
	// exist (the attempt stands in a plan record, or only its status does) and is created.
	Rev uint64
	// Unbegun says that the stop is for an attempt that has not begun: it is refused if its agent reported meanwhile.
	Unbegun bool
	Event   cluster.Event
}

// Move is a task that runs on a node that it is to leave. Nothing of it is written before Next has been found a place:
// what has nowhere to go stays. Then either the attempt gets its outcome and goes on until the next one is healthy
// (Conclusion), or, where two must not live at once, it is stopped first (Stop). One of the two is nil. The place
// itself is found again, by the next decision.
type Move struct {
	Next       cluster.Pending
	From       string
	Conclusion *Conclusion
	Stop       *Stop
	// Limit, unless it is 0, says that the move takes a healthy task from the service until the next attempt is
	// healthy, and how many such moves of one decision may be written: any of them, as places are found (P5.4).
	Limit int
}

// Adoption makes the desired record of an attempt that its agent reports and that the store has no record of. The
// attempt's status is compared.
type Adoption struct {
	Desired     cluster.Desired
	ObservedRev uint64
	Event       cluster.Event
}

// Conclusion is an outcome to be written, once (P4.2).
type Conclusion struct {
	Outcome cluster.Outcome
	// Desired, unless nil, is the desired record with its stop, to be written in the same transaction. It is nil
	// for a lost attempt of a keep service: that goes on if its node returns, until the
	// newest attempt is healthy (P5.1).
	Desired *cluster.Desired
	// DesiredRev and ObservedRev are compared; 0 means that the record must not exist.
	DesiredRev, ObservedRev uint64
	Event                   cluster.Event
}

// Cleanup deletes the desired and the observed record of an attempt. A desired record is
// deleted only after its plan record (P3.4); the committer sees to that.
type Cleanup struct {
	Task    cluster.TaskID
	Attempt int
	UUID    string
	Node    string
	// DesiredRev and ObservedRev are compared; a record with revision 0 does not exist.
	DesiredRev, ObservedRev uint64
	// Plan is the plan record that placed the attempt, 0 if it is not known.
	Plan uint64
}

// Trim deletes an outcome.
type Trim struct {
	Task    cluster.TaskID
	Attempt int
}

// Numbers of the reconciler.
const (
	// KeptOutcomes is how many of the newest outcomes of a service's task are kept. They are also the memory of
	// the back-off, so they must be enough to reach MaxDelay. A job's outcomes are kept as long as the job.
	KeptOutcomes = 10
	// FirstDelay is waited before the attempt that follows a first failure; it doubles up to MaxDelay
	// for a service, MaxJobDelay for a job. An attempt that ran for SteadyTime is forgiven.
	FirstDelay  = time.Second
	MaxDelay    = 5 * time.Minute
	MaxJobDelay = 30 * time.Second
	SteadyTime  = 10 * time.Minute
	// LeavePatience is how long a task that moves off a node that is well, and shares no node with its like, is left
	// alone where it is if its next attempt finds no place, and how long that is for one node alone, if it is.
	LeavePatience = time.Minute
	// TimeLimitMargin is how long, beyond time limit and grace, the agent is given to end a task itself.
	TimeLimitMargin = time.Minute
)

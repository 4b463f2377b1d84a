// Package reconciler compares what an owner wants with the state of its tasks, and returns the difference as data:
// desired minus observed.
//
// An owner is a service or a job. The ids of its tasks follow from its spec. A waiting task is therefore stored
// nowhere: it is a wanted task without records. A task has numbered attempts, and at most one attempt has no outcome.
// Attempt n+1 is requested only from a state that holds the outcome of attempt n (P3.7).
//
// Service and Job are pure functions, with one call for each owner. The caller may call them again at any time with the
// current tables: a decision never repeats a write that the tables already hold. The caller commits each Stop,
// Conclusion and Cleanup as a group of its own, compares the revisions in it, and hands Pending to the scheduler.
//
// This package alone makes the following decisions:
//
//   - A service keeps Count tasks running, and a daemon one on each of its nodes. A task that ended, well or badly,
//     gets a new attempt until it has failed too often. Finite work belongs to jobs.
//   - A rollout replaces a few tasks at a time. It keeps the best old tasks until healthy new tasks replace them. It
//     completes, or it fails and goes back (see rollout).
//   - A healthy task is given up only while the service keeps the number of healthy tasks that its update policy
//     demands. The number is checked when the stop is decided, and again when the agent requests the permit (see
//     budget, permit).
//   - A job with a task that has no retries left begins nothing more. Its running tasks may finish.
//   - A service's task leaves a node, for a drain or another reason, once its next attempt is healthy elsewhere. A
//     job's task may end on a drained node; for other reasons it stops immediately. A preempted task stops before its
//     next attempt begins.
//   - An attempt that runs without a record in the store is adopted if its owner wants it, and stopped otherwise.
//
// # Size
//
// The rules of services, daemons, jobs, rollouts and drains act on the same two values: a slot, which is a wanted task
// with its attempts, and the plan. Both would be exported if the rules were packages. Each rule has a file. A slot has
// a method for each question that rules ask about a task, and a rollout one for each rule of a rollout.
package reconciler

import (
	"time"

	"github.com/berthd/berth/internal/clause"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
)

// Task is one attempt of a task, with the watcher's view of its node.
type Task struct {
	cluster.Attempt
	Absence watcher.Absence
	// Drain, unless nil, says that the attempt's node is being emptied.
	Drain *cluster.Drain
	// Leave, unless nil, says that the attempt must leave its node, although the node is well and not drained.
	Leave *Leave
	// Reported says that this leader has received the node's full report. Then an attempt without a status does not run
	// there, and a healthy attempt counts when the budget gives up others.
	Reported bool
	// Running is how long this leader has seen an attempt with a time limit run, on its boot-time clock (RunsLimited).
	Running time.Duration
}

// Recovery describes a store that went back (P1.7). The zero value means a store that never did.
type Recovery struct {
	// Incarnation is the incarnation of the store. An attempt that was placed under an earlier incarnation and is
	// unknown to its node has ended there.
	Incarnation uint64
	// StopBefore, unless zero, is the time of the operator's decision to stop unknown attempts. An attempt without a
	// record that began before StopBefore is stopped; one that began later is adopted.
	StopBefore time.Time
}

// Definitions finds a version of a task definition, or returns nil.
type Definitions func(cluster.Ref) *cluster.TaskDefinition

// ServiceInput holds everything that a decision about a service depends on.
type ServiceInput struct {
	// Owner is the service; Spec is nil when its record is gone and tasks of it are left.
	Owner cluster.OwnerRef
	// Spec is the service. Its count is the one that scaling chose, see Snapshot.Wanted.
	Spec    *cluster.Service
	SpecRev uint64
	// Rollout is the record of the newest version's rollout, nil if there is none yet. RolloutRev is its revision.
	Rollout    *cluster.Rollout
	RolloutRev uint64
	// Gates are the results of the spec's gates, in the spec's order. A gate that was not measured has neither passes
	// nor failures.
	Gates []cluster.GateResult
	// Nodes holds, for a daemon, the ordered names of the nodes that should have one of its tasks. These nodes are
	// known, not gone, and meet the constraints of the daemon and of its cluster. A silent node is included only while
	// a record of the service's tasks exists there. For services with replicas Nodes is nil.
	Nodes []string
	// Alone holds, for a daemon, the drained nodes on which only tasks of daemons are left. The daemon's own task ends
	// there too, and no new one begins.
	Alone map[string]bool
	// Staying holds, for a daemon, the nodes without it on which its task may stay for a while, and until when.
	Staying map[string]time.Time
	// Unmet says in a sentence which of the spec's needs are not met; empty if all are met.
	Unmet string
	// Definitions finds the definitions of all generations that still have tasks.
	Definitions Definitions
	// Tasks are all attempts of the owner, of all generations, in any order. They include attempts with only the
	// outcome left.
	Tasks []Task
	// Cluster is the owner's cluster, or nil if it has no record. Its constraints apply to each task, and the service
	// goes back to no version that needs a permission which it lacks.
	Cluster  *cluster.Cluster
	Recovery Recovery
	// Since, unless zero, is the time from which deadlines count at the earliest: the wall clock was set then, or a new
	// leader took over (P9.1).
	Since time.Time
	// ClockSet, unless zero, is the time at which the leader's wall clock was set, or at which the leader took over
	// with a clock that may be wrong. It is not after Now; see ClockHold.
	ClockSet time.Time
	Now      time.Time
	// Without disables protocol clauses, in tests only.
	Without clause.Set
}

// JobInput holds everything that a decision about a job depends on. The fields are as in ServiceInput.
type JobInput struct {
	Owner       cluster.OwnerRef
	Spec        *cluster.Job
	SpecRev     uint64
	Unmet       string
	Definitions Definitions
	Tasks       []Task
	// Packed are the packed tasks of the job, of all its runs.
	Packed   []Packed
	Cluster  *cluster.Cluster
	Recovery Recovery
	// Keep is the time for which an ended job is kept; 0 means for ever, as for a job of a cron.
	Keep     time.Duration
	ClockSet time.Time
	Now      time.Time
}

// Decision is the list of actions for one owner. Every list is ordered by task and attempt.
type Decision struct {
	// Pending are wanted tasks without a placement.
	Pending []cluster.Pending
	// Moves are tasks that should leave their node. Each moves once another node has room for it.
	Moves []Move
	// Stops turn desired records of live attempts into stops.
	Stops []Stop
	// Adoptions write the desired records of attempts that run and have none.
	Adoptions []Adoption
	// Conclusions write the outcomes of ended attempts.
	Conclusions []Conclusion
	// Reconnects delete the outcomes of lost attempts that go on.
	Reconnects []Reconnect
	// Cleanups delete the records of attempts that have an outcome and no remains on any node.
	Cleanups []Cleanup
	// Trims delete outcomes that nothing needs any more.
	Trims []Trim
	// Packs write records of packed tasks, and Unpacks delete such records.
	Packs   []Pack
	Unpacks []Unpack
	// Rollout, unless nil, is the new record of the newest version's rollout.
	Rollout *RolloutWrite
	// Revert, unless nil, requests an earlier version again.
	Revert *Revert
	// Expire requests the deletion of a job whose retention time has passed. It compares the spec's revision.
	Expire bool
	// Cancel requests that a job be cancelled because its deadline has passed. It compares the spec's revision.
	Cancel bool
	// Begin requests that the needs of a job's run count as met from now on. It compares the spec's revision.
	Begin bool
	// AwaitsNeeds says that the owner's first task waits for the needs of the spec. Another decision is due when one of
	// these services or jobs changes.
	AwaitsNeeds bool
	// Remove requests the deletion of the owner's spec: the owner is deleted and none of its tasks is left.
	Remove bool
	// Events report facts about the owner as a whole, such as the end of a job. They hold once all Conclusions are
	// committed. If a conclusion is refused, a later decision repeats the events.
	Events []cluster.Event
	// Waits explain to people what stops, batches and tasks of a service wait for: see Waits.
	Waits []Wait
	// Message explains in a sentence why the owner is not in its desired state; empty if it is.
	Message string
	// NextDecision is the time of the next decision even if no input changes; zero for none.
	NextDecision time.Time
}

// Empty reports whether there is nothing to write and nothing to place.
func (d *Decision) Empty() bool {
	return len(d.Pending) == 0 && len(d.Moves) == 0 && len(d.Stops) == 0 && len(d.Adoptions) == 0 &&
		len(d.Conclusions) == 0 && len(d.Reconnects) == 0 && len(d.Cleanups) == 0 &&
		len(d.Trims)+len(d.Packs)+len(d.Unpacks) == 0 && d.Rollout == nil && d.Revert == nil && !d.Expire &&
		!d.Cancel && !d.Begin && !d.Remove
}

// decideAgainAt requests another decision at t, unless an earlier one is requested.
func (d *Decision) decideAgainAt(t time.Time) {
	if d.NextDecision.IsZero() || t.Before(d.NextDecision) {
		d.NextDecision = t
	}
}

// RolloutWrite writes a service's rollout record. It compares the revisions of the record and of the spec.
type RolloutWrite struct {
	Record  cluster.Rollout
	Rev     uint64 // 0: there is none yet
	SpecRev uint64
	Events  []cluster.Event
}

// Revert takes a failed rollout back: it writes the service's spec with the next generation and an earlier definition,
// as a user would. It compares the spec's revision and shares a transaction with the rollout record.
type Revert struct {
	Definition cluster.Ref
	Failed     uint64 // the generation that failed
	SpecRev    uint64
}

// Stop writes a desired record that contains a stop, or the permit for one.
type Stop struct {
	// Desired is the whole record, including its Stop. The committer renews the token.
	Desired cluster.Desired
	// Rev is the revision of the desired record to compare. 0 means that the record does not exist and is created: the
	// attempt is only in a plan record, or only its status exists.
	Rev uint64
	// Unbegun says that the stop is only for an attempt that has not begun. The stop is refused if the agent has
	// reported the attempt meanwhile.
	Unbegun bool
	Event   cluster.Event
}

// Move takes a task off its node. Nothing is written until the scheduler finds a place for Next: a task without another
// place stays. Then the attempt gets its outcome and runs on until the next attempt is healthy (Conclusion). If two
// attempts must not live concurrently, the attempt is stopped first (Stop). Exactly one of the two is nil. The next
// decision searches for the place again.
type Move struct {
	Next       cluster.Pending
	From       string
	Conclusion *Conclusion
	Stop       *Stop
	// Limit, unless 0, says that the move costs the service a healthy task until the next attempt is healthy. It is the
	// number of such moves that may be written for one decision; any of them may be chosen (P5.4).
	Limit int
}

// Adoption creates the desired record of an attempt that its agent reports and the store does not know. It compares the
// revision of the attempt's status.
type Adoption struct {
	Desired     cluster.Desired
	ObservedRev uint64
	Event       cluster.Event
}

// Reconnect deletes the outcome of a lost attempt whose node returned before a later attempt was placed. The attempt
// goes on (P6.7).
type Reconnect struct {
	Task    cluster.TaskID
	Attempt int
	Event   cluster.Event
}

// Conclusion is an outcome to be written, once (P4.2).
type Conclusion struct {
	Outcome cluster.Outcome
	// Desired, unless nil, is the desired record with its stop, written in the same transaction. It is nil for a lost
	// attempt with on_disconnect keep: that attempt runs on if its node returns, until the newest attempt is healthy
	// (P5.1).
	Desired *cluster.Desired
	// DesiredRev and ObservedRev are compared; 0 means that the record must not exist.
	DesiredRev, ObservedRev uint64
	Event                   cluster.Event
}

// Cleanup deletes the desired and the observed record of an attempt. The committer deletes a desired record only after
// its plan record (P3.4).
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

// Limits and delays of the reconciler.
const (
	// KeptOutcomes is the number of newest outcomes that are kept for each task of a service. The back-off is computed
	// from them, so the number must suffice to reach MaxDelay. A job's outcomes are kept as long as the job.
	KeptOutcomes = 10
	// FirstDelay is the delay before the attempt that follows a first failure. It doubles up to MaxDelay for a service
	// and MaxJobDelay for a job. An attempt that ran for SteadyTime does not count as a failure.
	FirstDelay  = time.Second
	MaxDelay    = 5 * time.Minute
	MaxJobDelay = 30 * time.Second
	SteadyTime  = 10 * time.Minute
	// MoveTimeout is the time for which the next attempt of a moved task may search its place. Until then a task that
	// cannot share a node with another of its kind keeps running on its healthy node. The attempt may use any node
	// after MoveTimeout, even if the move named one node.
	MoveTimeout = time.Minute
	// TimeLimitMargin is the time beyond time limit and grace that the agent has to end a task itself.
	TimeLimitMargin = time.Minute
)

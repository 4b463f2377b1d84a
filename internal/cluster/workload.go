package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind is the kind of an object that users write.
type Kind string

// Kinds, in the order in which a set of manifests is applied.
const (
	KindDomain         Kind = "Domain"
	KindCluster        Kind = "Cluster"
	KindPool           Kind = "Pool"
	KindProfile        Kind = "Profile"
	KindTaskDefinition Kind = "TaskDefinition"
	KindService        Kind = "Service"
	KindJob            Kind = "Job"
	KindCron           Kind = "Cron"
	KindEndpoint       Kind = "Endpoint"
)

// Values returns every Kind, in the order of the constants.
func (Kind) Values() []Kind {
	return []Kind{
		KindDomain, KindCluster, KindPool, KindProfile, KindTaskDefinition, KindService, KindJob, KindCron,
		KindEndpoint,
	}
}

// DefaultCluster is the cluster of objects that name none.
const DefaultCluster = "default"

// ZeroCount returns the fault of an explicit count of 0. Only readers of text can distinguish it from an omitted count:
// they refuse 0 in fields with the tag zero:"refused".
func ZeroCount() string {
	return fmt.Sprintf("is 0, want a number from 1 to %d; without the field it is 1", MaxCount)
}

// Cluster is a named collection of services and jobs in one domain. Writer: the user.
type Cluster struct {
	Name   string `json:"name"`
	Labels Labels `json:"labels,omitempty"`
	// Domain is the domain on whose nodes the tasks of the cluster run. Default DefaultDomain.
	Domain string `json:"domain,omitempty"`
	// Constraints hold for every task of the cluster.
	Constraints []Constraint `json:"constraints,omitempty"`
	// Strategy is for services and steps that name none and run in no pool that has one.
	Strategy Strategy `json:"strategy,omitempty"`
	// Preemption says whether tasks of lower priority end to make room for the cluster's tasks. Default lower.
	Preemption Preemption `json:"preemption,omitempty"`
	// KeepJobs is how long a job is kept after its end, with the outcomes of its attempts. Default DefaultKeepJobs.
	// Jobs of a cron are kept by their number instead, while the cron is there.
	KeepJobs Duration `json:"keep_jobs,omitempty"`
	// Permissions are what the cluster's tasks may use beyond themselves: capabilities, devices, discovery,
	// host-network, host-path, no-isolation, root. Only an admin changes them. If they are left out, a cluster keeps
	// its permissions, and a new cluster gets the server's default: none, with berth dev all.
	Permissions []Permission `json:"permissions,omitzero"`
	// Quota, unless nil, limits what the cluster's tasks hold together.
	Quota *Quota `json:"quota,omitempty"`
	// Queue is for tasks of jobs that run in no pool that has a policy.
	Queue *QueueSettings `json:"queue,omitempty"`
	// Deleted says that a deletion is under way, which accepts no new services or jobs. The API server sets it; a
	// client's value is ignored.
	Deleted bool `json:"deleted,omitempty"`
}

// DefaultKeepJobs is how long a cluster keeps jobs that have ended, by default.
const DefaultKeepJobs = Duration(7 * 24 * time.Hour)

// InDomain returns the domain of the cluster. Without a record (nil) or a domain in it, that is DefaultDomain.
func (c *Cluster) InDomain() string {
	if c == nil || c.Domain == "" {
		return DefaultDomain
	}
	return c.Domain
}

// Preemption says for whom tasks that wait may have others end.
type Preemption string

// Ways of preemption.
const (
	PreemptLower Preemption = "lower" // for tasks whose priority is higher by PreemptionGap at least
	PreemptNever Preemption = "never" // its tasks wait until there is room
)

// Values returns every Preemption, in the order of the constants.
func (Preemption) Values() []Preemption {
	return []Preemption{PreemptLower, PreemptNever}
}

// PreemptionGap is the least difference of priorities for which a task preempts another.
const PreemptionGap = 100

// Lifespan is the part of a service's or job's spec that the API server fills in at each write. A client's values are
// ignored.
type Lifespan struct {
	// Generation counts the rollouts: it grows when the definition changes or a user requests a restart. It never goes
	// back while the object or a task of it exists, and is part of every task id.
	Generation uint64 `json:"generation,omitempty"`
	// Restarted is the generation of the last requested restart. Tasks of an older generation are replaced, even if
	// they run the current definition.
	Restarted uint64 `json:"restarted,omitempty"`
	// Recounted grows whenever the user sets the count of a service. An earlier result of scaling no longer counts
	// then, even if the number is the same.
	Recounted uint64 `json:"recounted,omitempty"`
	// Inline lists, sorted, the names of the definitions that the user wrote inside of the object, as templates. Views
	// for people then show the definition in its place. No decision depends on it.
	Inline []string `json:"inline,omitempty"`
	// Deleted says that the user deleted the object. The control plane stops its tasks and then removes the record.
	Deleted bool      `json:"deleted,omitempty"`
	Created time.Time `json:"created,omitzero"`
	Updated time.Time `json:"updated,omitzero"`
	// Trace is the W3C traceparent of the last write, empty without tracing. No decision depends on it.
	Trace string `json:"trace,omitempty"`
}

// Service keeps tasks of one definition running. Writer: the user, the API server for Lifespan, and the control plane
// for a rollback (ADR 0040).
type Service struct {
	Cluster string `json:"cluster,omitempty"`
	Name    string `json:"name"`
	Labels  Labels `json:"labels,omitempty"`
	// Definition is the version of a task definition that the tasks run. A manifest has it or a Template.
	Definition Ref `json:"definition,omitzero"`
	// Template is the definition, inside of the service. The server writes it as the next version, unless a version has
	// the same content, and stores the version as Definition. A stored service has no Template.
	Template *InlineDefinition `json:"template,omitempty"`
	// Mode says how many tasks there are, and on which nodes. Default replicas.
	Mode ServiceMode `json:"mode,omitempty"`
	// Count is the number of tasks to run; with Scaling, the initial number (default its Min). Stopped keeps the number
	// but runs no task.
	Count   int  `json:"count"`
	Stopped bool `json:"stopped,omitempty"`
	// KeepRoom keeps the CPU, memory, disk, devices and fixed ports of the service on its node while it runs no task,
	// until it is deleted. It is for a service of one task, which a constraint binds to one node: `node.name` = the
	// node.
	KeepRoom bool `json:"keep_room,omitempty"`
	// Needs are services and jobs of the cluster, as "service/NAME" and "job/NAME". The first task of the service is
	// placed once each of these services was healthy and each of these jobs had succeeded at the same time.
	Needs []string `json:"needs,omitempty"`
	// Priority precedes the tasks of lower ones. Default DefaultPriority.
	Priority Priority `json:"priority,omitempty"`
	// Placement says where tasks may and should run.
	Placement Placement `json:"placement,omitzero"`
	// OnDisconnect decides about tasks of a silent node (P6.3). Default keep.
	OnDisconnect OnDisconnect `json:"on_disconnect,omitempty"`
	// OnViolation decides about tasks whose node no longer meets the constraints, or left the pool. Default keep.
	OnViolation OnViolation `json:"on_violation,omitempty"`
	// Update says how tasks are replaced.
	Update Update `json:"update,omitzero"`
	// Reschedule is the policy after an attempt that failed permanently.
	Reschedule Reschedule `json:"reschedule,omitzero"`
	// Scaling, unless nil, changes the count by the usage of the tasks or by the clock.
	Scaling *Scaling `json:"scaling,omitempty"`

	// Rollout holds the user's requests about the newest rollout. A manifest's value is ignored.
	Rollout RolloutWish `json:"rollout,omitzero"`
	Lifespan
}

// Job runs its steps' tasks to success, once. Writer: the user; Lifespan and Submitted by the API server. The leader
// cancels and deletes jobs, and sets NeedsMet.
type Job struct {
	Cluster string `json:"cluster,omitempty"`
	Name    string `json:"name"`
	Labels  Labels `json:"labels,omitempty"`
	Steps   []Step `json:"steps"`
	// Key, unless empty, names a submission. A write with the key that the job already has changes nothing, so that it
	// may be repeated, unless it names the revision that it changes. A write with another key runs the job again.
	Key string `json:"key,omitempty"`
	// Needs are services and jobs of the cluster, as Service.Needs. They precede the first task of each run of the job.
	Needs []string `json:"needs,omitempty"`
	// Priority precedes the tasks of lower ones. Default DefaultPriority.
	Priority Priority `json:"priority,omitempty"`
	// Hold says that no task begins any more. Running tasks continue.
	Hold bool `json:"hold,omitempty"`
	// Concurrency, unless nil, is the group of jobs of the cluster of which only some have begun and not ended at the
	// same time. The job has its place in the group from its first attempt until its end, also between its steps.
	Concurrency *Concurrency `json:"concurrency,omitempty"`
	// Deadline, unless 0, cancels the job that long after Submitted.
	Deadline Duration `json:"deadline,omitempty"`
	// Keep, unless 0, is how long the job is kept after its end, instead of the cluster's KeepJobs. Jobs of a cron are
	// kept by their number, while the cron is there.
	Keep Duration `json:"keep,omitempty"`
	// Cancelled stops the job: no task is started any more, running ones are stopped.
	Cancelled bool `json:"cancelled,omitempty"`
	// CancelReason is why the control plane cancelled the job; empty if the user did. A client's value is ignored.
	CancelReason ReasonCode `json:"cancel_reason,omitempty"`
	// Submitted is when the present run of the job was requested. A client's value is ignored.
	Submitted time.Time `json:"submitted,omitzero"`
	// SubmittedBy is the user who requested the present run, for fair queues: the name of a token, or how the user was
	// identified; "cron/NAME" for a job of a cron. A client's value is ignored.
	SubmittedBy string `json:"submitted_by,omitempty"`
	// NeedsMet is when all of Needs were met for the present run. A client's value is ignored.
	NeedsMet time.Time `json:"needs_met,omitzero"`
	// Retried holds the user's requests to try failed tasks again. A client's value is ignored.
	Retried JobRetries `json:"retried,omitzero"`
	// Cron names the cron that made the job, and At is its moment. A client's values are ignored.
	Cron string    `json:"cron,omitempty"`
	At   time.Time `json:"at,omitzero"`
	// Positions, unless nil, are the indices of Steps by name. Reading a stored job of many steps sets them. Step
	// checks each position, so they may be those of other steps.
	Positions map[string]int `json:"-"`

	Lifespan
}

// JobRetries says which failures of a job's tasks no longer count, because the user had the tasks tried again. A new
// run of the job begins without them.
type JobRetries struct {
	// All says that no failure of an attempt counts that was placed by then.
	All time.Time `json:"all,omitzero"`
	// Tasks is the same for single tasks, by step and index: "build.3".
	Tasks map[string]time.Time `json:"tasks,omitempty"`
	// Attempts is how many attempts the run had had when its user had tasks tried again after it had ended. The job
	// begins again with the next attempt: until then it has no place in its concurrency group. 0 means that it never
	// ended before such a request.
	Attempts int `json:"attempts,omitzero"`
}

// Of returns the time by which attempts of a task were placed whose failures do not count.
func (r *JobRetries) Of(step string, index int) time.Time {
	if at := r.Tasks[RetriedTask(step, index)]; at.After(r.All) {
		return at
	}
	return r.All
}

// RetriedTask returns the key of a task in JobRetries.Tasks.
func RetriedTask(step string, index int) string { return step + "." + strconv.Itoa(index) }

// Plain returns a copy of the job without the fields that only servers write.
func (j *Job) Plain() *Job {
	plain := *j
	plain.Lifespan, plain.Cron, plain.At = Lifespan{}, "", time.Time{}
	plain.Submitted, plain.NeedsMet, plain.CancelReason, plain.SubmittedBy = time.Time{}, time.Time{}, "", ""
	plain.Retried = JobRetries{}
	return &plain
}

// RunSubmitted returns when the present run of the job was requested.
func (j *Job) RunSubmitted() time.Time {
	switch {
	case !j.Submitted.IsZero():
		return j.Submitted
	case !j.Updated.IsZero():
		return j.Updated
	}
	return j.Created
}

// Requirement says how the steps that a step needs must end.
type Requirement string

// Requirements of a step.
const (
	// RequireCompleted demands that all of them succeed. Otherwise the step is skipped.
	RequireCompleted Requirement = "all-completed"
	// RequireResolved demands that all of them end in any way, such as for a step that cleans up.
	RequireResolved Requirement = "all-resolved"
)

// Values returns every Requirement, in the order of the constants.
func (Requirement) Values() []Requirement { return []Requirement{RequireCompleted, RequireResolved} }

// ExitCodes says which exit codes are worth a retry. At most one of the lists is set. Attempts that fail in other ways,
// such as by their time limit, are tried again while the step has retries.
type ExitCodes struct {
	// Intermittent codes are tried again. A task whose program exits with any other code has failed.
	Intermittent []int `json:"intermittent,omitempty"`
	// Final codes are not tried again: the task has failed.
	Final []int `json:"final,omitempty"`
}

// IsFinal reports whether a task whose program exited with the code has failed, whatever retries are left.
func (e *ExitCodes) IsFinal(code int) bool {
	if e == nil {
		return false
	}
	return slices.Contains(e.Final, code) || len(e.Intermittent) > 0 && !slices.Contains(e.Intermittent, code)
}

// Step is a part of a job: Count tasks of one definition.
type Step struct {
	Name string `json:"name"`
	// Needs are the names of the steps of this job that must end before the tasks begin; see Requires.
	Needs []string `json:"needs,omitempty"`
	// Requires says how the needed steps must end. Default all-completed.
	Requires Requirement `json:"requires,omitempty"`
	// Definition is the version of a task definition that the tasks run. A manifest has it or a Template.
	Definition Ref `json:"definition,omitzero"`
	// Template is the definition, written inside of the step; see Service.Template.
	Template *InlineDefinition `json:"template,omitempty"`
	// Count is how many tasks the step has, each with an index from 0. Default 1, or as many as the Parameters make.
	Count int `json:"count,omitempty" zero:"refused"`
	// Parameters, unless nil, gives each task values of its own.
	Parameters *Parameters `json:"parameters,omitempty"`
	// Parallelism, unless 0, is how many of the tasks run at the same time at most.
	Parallelism int `json:"parallelism,omitempty"`
	// Concurrency, unless nil, is the group of tasks of the cluster of which only some run at the same time.
	Concurrency *Concurrency `json:"concurrency,omitempty"`
	// Retries is the number of further attempts of a task after a failure, or after a loss past its start barrier. 0 to
	// MaxRetries.
	Retries int `json:"retries,omitempty"`
	// ExitCodes, unless nil, says which exit codes of the tasks' programs are worth a retry.
	ExitCodes *ExitCodes `json:"exit_codes,omitempty"`
	// Idempotent says that a task may run more than once. Then attempts that end through no fault of their own, such as
	// with their node, use no retry, also after their start.
	Idempotent bool `json:"idempotent,omitempty"`
	// TimeLimit, unless 0, ends an attempt that runs longer; it has failed.
	TimeLimit Duration  `json:"time_limit,omitempty"`
	Placement Placement `json:"placement,omitzero"`
	// OnDisconnect decides about tasks of a silent node (P6.3). Default keep for idempotent steps and those with
	// retries, else wait.
	OnDisconnect OnDisconnect `json:"on_disconnect,omitempty"`
	// Gang, unless nil, makes the step's tasks one: they are placed together or none of them is.
	Gang *Gang `json:"gang,omitempty"`
}

// Bounds of counts.
const (
	MaxCount     = 100_000 // tasks of a service
	MaxSteps     = 10_000
	MaxTemplates = 1000      // different templates of the steps of a job
	MaxNeeds     = 1000      // of a step
	MaxStepNeeds = 50_000    // of all steps of a job
	MaxJobTasks  = 1_000_000 // of all steps of a job
	MaxRetries   = 49
	MaxExitCodes = 64 // of a list
	// MaxRetriedTasks is the number of tasks of a job that a user may have tried again one by one.
	MaxRetriedTasks = 1000
	MaxContainers   = 50
	// MaxDispatches is the number of losses before the start barrier that a task has free of charge. The next loss
	// counts as a failure.
	MaxDispatches = 10
)

// OnDisconnect is the class of a task, which decides what happens when its node is silent.
type OnDisconnect string

// Classes for silence (P6.3).
const (
	// DisconnectKeep replaces the task after the limit; two may live while the node is unreachable.
	DisconnectKeep OnDisconnect = "keep"
	// DisconnectWait replaces the task only once the node is known to be gone.
	DisconnectWait OnDisconnect = "wait"
)

// Values returns every OnDisconnect, in the order of the constants.
func (OnDisconnect) Values() []OnDisconnect {
	return []OnDisconnect{DisconnectKeep, DisconnectWait}
}

// OnViolation decides about tasks whose node no longer meets their requirements, because its labels or pool changed, or
// the requirements did.
type OnViolation string

// Ways to deal with violations. Status views show violations in any case.
const (
	ViolationKeep OnViolation = "keep" // the task stays until it ends for another reason
	ViolationMove OnViolation = "move" // it moves, as off a node that is drained
)

// Values returns every OnViolation, in the order of the constants.
func (OnViolation) Values() []OnViolation {
	return []OnViolation{ViolationKeep, ViolationMove}
}

// Strategy says how feasible nodes are ranked. A service or step without a strategy has that of its pool, else of its
// cluster. Else it is whole for tasks that request devices, spread for services and binpack for jobs; spread and
// binpack then avoid nodes where devices would lack CPU or memory.
type Strategy string

// Strategies.
const (
	StrategyBinpack Strategy = "binpack" // fill nodes, keep others empty
	StrategySpread  Strategy = "spread"  // use nodes evenly
	// StrategyWhole keeps the free resources of nodes usable together: CPU with memory, whole devices, and the CPU that
	// they need.
	StrategyWhole Strategy = "whole"
)

// Values returns every Strategy, in the order of the constants.
func (Strategy) Values() []Strategy {
	return []Strategy{StrategyBinpack, StrategySpread, StrategyWhole}
}

// Placement says where tasks may run (constraints) and should run (the rest).
type Placement struct {
	// Strategy ranks the feasible nodes. Default: that of the pool, of the cluster, or by the kind of tasks.
	Strategy Strategy `json:"strategy,omitempty"`
	// Constraints are requirements that a node must meet, all of them, to run the tasks.
	Constraints []Constraint `json:"constraints,omitempty"`
	// AntiAffinity says how strictly tasks of one service or step avoid each other's nodes.
	AntiAffinity AntiAffinity `json:"anti_affinity,omitempty"`
	// Pool, unless empty, is the pool of nodes that they run on.
	Pool string `json:"pool,omitempty"`
	// Affinities are preferences for nodes with an attribute, or against them.
	Affinities []Affinity `json:"affinities,omitempty"`
	// Spread are preferences, or requirements, for even numbers of tasks over the values of an attribute, such as
	// racks.
	Spread []Spread `json:"spread,omitempty"`
	// Relations are preferences, or requirements, to be near the tasks of other services and jobs, or away from them.
	Relations []Relation `json:"relations,omitempty"`
	// Distinct are requirements on the number of tasks that share a node, or another value of an attribute.
	Distinct []Distinct `json:"distinct,omitempty"`
	// Tolerations are the taints of nodes that do not keep the tasks away.
	Tolerations []Toleration `json:"tolerations,omitempty"`
	// Reservation, unless empty, names the reservation on whose nodes the tasks run while it lasts: see Reservation.
	Reservation string `json:"reservation,omitempty"`
}

// AntiAffinity says how strictly tasks of one owner avoid each other's nodes.
type AntiAffinity string

// Degrees of anti-affinity.
const (
	AntiAffinityNone   AntiAffinity = "none"
	AntiAffinityPrefer AntiAffinity = "prefer" // the default for services; steps default to none
	AntiAffinityDemand AntiAffinity = "require"
)

// Values returns every AntiAffinity, in the order of the constants.
func (AntiAffinity) Values() []AntiAffinity {
	return []AntiAffinity{AntiAffinityNone, AntiAffinityPrefer, AntiAffinityDemand}
}

// ConstraintOp compares a node's attribute with a value.
type ConstraintOp string

// Operators of constraints. An attribute that a node lacks is "".
const (
	OpEqual    ConstraintOp = "="
	OpNotEqual ConstraintOp = "!="
	OpIn       ConstraintOp = "in"     // one of Values
	OpNotIn    ConstraintOp = "not-in" // none of Values
	OpExists   ConstraintOp = "exists"
	OpLess     ConstraintOp = "<"  // as numbers
	OpMore     ConstraintOp = ">"  // as numbers
	OpAtLeast  ConstraintOp = ">=" // as versions: numbers between dots, compared one by one
	OpAtMost   ConstraintOp = "<=" // as versions
)

// Values returns every ConstraintOp, in the order of the constants.
func (ConstraintOp) Values() []ConstraintOp {
	return []ConstraintOp{OpEqual, OpNotEqual, OpIn, OpNotIn, OpExists, OpLess, OpMore, OpAtLeast, OpAtMost}
}

// Constraint is a requirement on a node.
type Constraint struct {
	// Attribute is "node.name", "node.arch", "node.os", "node.kernel", "node.executor", "node.class", "node.pool",
	// "device.<type>.model", "device.<type>.count" or "label.<key>".
	Attribute string `json:"attribute"`
	// Op is the comparison of the attribute with Value or Values: "=", "!=", "in", "exists" and so on. Default "=".
	Op ConstraintOp `json:"op,omitempty"`
	// Value is compared with the attribute of the node: as text, for "<" and ">" as a number, and for "<=" and ">="
	// as a version.
	Value string `json:"value,omitempty"`
	// Values are the texts of which one, or for "not-in" none, is the attribute of the node.
	Values []string `json:"values,omitempty"`
}

// OwnerRef names the service or job that a task belongs to.
type OwnerRef struct {
	Kind    Kind   `json:"kind"`
	Cluster string `json:"cluster"`
	Name    string `json:"name"`
}

// String returns "service/web" style text with the cluster in front: "default/service/web".
func (o OwnerRef) String() string {
	kind := "service"
	switch o.Kind {
	case KindJob:
		kind = "job"
	case KindCron:
		kind = "cron"
	case KindEndpoint:
		kind = "endpoint"
	case KindService, KindDomain, KindCluster, KindPool, KindProfile, KindTaskDefinition:
	}
	return o.Cluster + "/" + kind + "/" + o.Name
}

// Compare orders owners by cluster, kind and name.
func (o OwnerRef) Compare(p OwnerRef) int {
	return cmp.Or(strings.Compare(o.Cluster, p.Cluster), strings.Compare(string(o.Kind), string(p.Kind)),
		strings.Compare(o.Name, p.Name))
}

// Owner returns the reference of this service.
func (s *Service) Owner() OwnerRef { return OwnerRef{KindService, s.Cluster, s.Name} }

// Desired returns how many tasks should run now.
func (s *Service) Desired() int {
	if s.Stopped || s.Deleted {
		return 0
	}
	return s.Count
}

// DisconnectPolicy returns what happens to the service's tasks on silent nodes. A daemon's tasks are not replaced.
func (s *Service) DisconnectPolicy() OnDisconnect {
	if s.Mode == ModeDaemon {
		return DisconnectWait
	}
	return s.OnDisconnect
}

// BoundNode returns the node to which a constraint binds the service, or "".
func (s *Service) BoundNode() string {
	for i := range s.Placement.Constraints {
		if c := &s.Placement.Constraints[i]; c.Attribute == "node.name" && (c.Op == OpEqual || c.Op == "") {
			return c.Value
		}
	}
	return ""
}

// Owner returns the reference of this job.
func (j *Job) Owner() OwnerRef { return OwnerRef{KindJob, j.Cluster, j.Name} }

// Step returns the step with the name, or nil.
func (j *Job) Step(name string) *Step {
	if i, ok := j.Positions[name]; ok && i < len(j.Steps) && j.Steps[i].Name == name {
		return &j.Steps[i]
	}
	for i := range j.Steps {
		if j.Steps[i].Name == name {
			return &j.Steps[i]
		}
	}
	return nil
}

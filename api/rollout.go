package api

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Messages about services in change: rollouts, scaling, and explanations.

// RolloutView is the state of the rollout of a service's newest version.
type RolloutView struct {
	Cluster string `json:"cluster"`
	Service string `json:"service"`
	// Version is the newest one. Its state is "rolling" as long as it has no record.
	cluster.Version
	// Changed is the time when the state last changed or another task became healthy for the first time. A rollout in
	// progress must make further progress until Deadline.
	Changed  time.Time `json:"changed,omitzero"`
	Deadline time.Time `json:"deadline,omitzero"`
	// Paused says that the user holds the rollout.
	Paused bool `json:"paused,omitempty"`
	// Reverted, unless 0, is the generation that this one undoes: a failed one, or one that a user has undone.
	Reverted uint64 `json:"reverted,omitempty"`
	// Desired is the number of tasks that the service wants, and Surge the number allowed beyond it. Least is the
	// number that must stay healthy, and Parallelism the number that is replaced at a time.
	Desired     int `json:"desired"`
	Surge       int `json:"surge"`
	Least       int `json:"least"`
	Parallelism int `json:"parallelism"`
	// Versions are the versions with running tasks, the newest first; the newest is always included.
	Versions []VersionCount `json:"versions"`
	// Canaries is nil for a rollout without canaries.
	Canaries *CanaryView `json:"canaries,omitempty"`
	// Gates are the gates of the update policy, in its order.
	Gates []GateView `json:"gates,omitempty"`
	// LastHealthy is the last version, apart from the newest, with all tasks healthy. An undo or a rollback returns to
	// it.
	LastHealthy *ServiceVersion `json:"last_healthy,omitempty"`
	// Waits says what the rollout waits for; empty once it has ended.
	Waits []Because `json:"waits,omitempty"`
	// Revision is the service's.
	Revision uint64 `json:"revision"`
}

// VersionCount counts the tasks of one version of a service. Tasks of earlier generations with the requested definition
// count as the newest version.
type VersionCount struct {
	Generation uint64 `json:"generation"`
	Definition Ref    `json:"definition"`
	// Newest says that the service requests this version now.
	Newest bool `json:"newest,omitempty"`
	// Desired is the number of tasks of the version that are wanted in the end, and Begun the number that exist.
	// Running and Healthy count the running and healthy ones of these.
	Desired int `json:"desired"`
	Begun   int `json:"begun"`
	Running int `json:"running"`
	Healthy int `json:"healthy"`
}

// CanaryView is the state of a version's canaries.
type CanaryView struct {
	// Count is the number of canaries wanted. Begun and Healthy count those that exist and those that are healthy.
	Count   int `json:"count"`
	Begun   int `json:"begun"`
	Healthy int `json:"healthy"`
	// Waiting says that all canaries are healthy and wait to be promoted. Auto says that this happens automatically
	// once all gates pass.
	Waiting bool `json:"waiting,omitempty"`
	Auto    bool `json:"auto,omitempty"`
	// Promoted says that the canaries were promoted.
	Promoted bool `json:"promoted,omitempty"`
}

// GateView is a gate with its last result.
type GateView struct {
	Gate
	// State is "passing", "failing", "waiting" (not enough results yet) or "unknown" (the answering server has no
	// result).
	State GateState `json:"state"`
	// Result is nil if unknown.
	Result *GateResult `json:"result,omitempty"`
}

// GateState is the state of a gate.
type GateState string

// States of a gate.
const (
	GatePassing GateState = "passing"
	GateFailing GateState = "failing"
	GateWaiting GateState = "waiting"
	GateUnknown GateState = "unknown"
)

// Values returns every GateState, in the order of the constants.
func (GateState) Values() []GateState {
	return []GateState{GatePassing, GateFailing, GateWaiting, GateUnknown}
}

// UndoRequest asks a service to return to an earlier version.
type UndoRequest struct {
	// Generation is the version's generation; 0 is the last version before the present one with all tasks healthy.
	Generation uint64 `json:"generation,omitempty"`
	// From, unless 0, is the generation to undo, as the caller read it. If another one is the newest by now, the
	// request is refused with 409, or was already done. Without From and Generation, an undo in progress is not undone.
	From uint64 `json:"from,omitempty"`
}

// PromoteRequest continues a rollout whose canaries wait.
type PromoteRequest struct {
	// Generation, unless 0, is the generation of the canaries, as the caller read it. If another one is the newest by
	// now, the request is refused with 409.
	Generation uint64 `json:"generation,omitempty"`
}

// RolloutHistory is the recorded versions of a service.
type RolloutHistory struct {
	Cluster string `json:"cluster"`
	Service string `json:"service"`
	// Versions, the newest first: the present one, and at most cluster.MaxVersions before it.
	Versions []VersionView `json:"versions"`
	Revision uint64        `json:"revision"`
}

// VersionView is a version of a service with its changes.
type VersionView struct {
	cluster.Version
	// Current says that the service requests this version now.
	Current bool `json:"current,omitempty"`
	// Fields are the fields of its task definition that differ from the version before, ordered by path. They are empty
	// for a restart, and if one of the two definitions is unknown.
	Fields []FieldChange `json:"fields,omitempty"`
	// Note says why there are no fields.
	Note string `json:"note,omitempty"`
}

// ScaleView is the count of a service, and what changes it.
type ScaleView struct {
	Cluster string `json:"cluster"`
	Service string `json:"service"`
	// Count is the number of tasks that the service wants now. Running and Healthy count the tasks that run and that
	// are healthy.
	Count   int `json:"count"`
	Running int `json:"running"`
	Healthy int `json:"healthy"`
	// Begin is the count in the service's spec, at which scaling starts.
	Begin int `json:"begin"`
	// Min and Max are the bounds of scaling, without changes by schedules; nil without scaling.
	Min *int `json:"min,omitempty"`
	Max *int `json:"max,omitempty"`
	// Scaling is the policy; nil for a service without scaling.
	Scaling   *Scaling `json:"scaling,omitempty"`
	Suspended bool     `json:"suspended,omitempty"`
	// At is the time of the last automatic change, and Message its reason.
	At      time.Time `json:"at,omitzero"`
	Message string    `json:"message,omitempty"`
	// Recent are the last changes, the newest first.
	Recent []ScaleChange `json:"recent,omitempty"`
	// Targets are the targets of the policy with their present measurements.
	Targets []TargetView `json:"targets,omitempty"`
	// Tasks are the resource use of each task, if the answering server knows it.
	Tasks []TaskUse `json:"tasks,omitempty"`
	// Revision is the service's.
	Revision uint64 `json:"revision"`
}

// TargetView is a target of scaling with its present measurement.
type TargetView struct {
	ScaleTarget
	// Value is the metric in the unit of the target; nil if the answering server does not know it. Message then says
	// why, and otherwise what the value is the mean of.
	Value   *float64  `json:"value,omitempty"`
	Message string    `json:"message,omitempty"`
	At      time.Time `json:"at,omitzero"`
	// Wish is the count that the measured load needs, before windows, pace and bounds.
	Wish int `json:"wish,omitempty"`
}

// TaskUse is the resource use of one attempt.
type TaskUse struct {
	TaskStats
	Node string `json:"node"`
}

// Explanation gives the reasons for the state of an object, the most important first.
type Explanation struct {
	// Owner is the service or job. Task is the task if the request named one.
	Owner OwnerRef `json:"owner"`
	Task  TaskID   `json:"task,omitempty"`
	// State is the state of the owner or the task.
	State string `json:"state"`
	// Summary is the message of the status, or else the most important reason; empty if there is neither.
	Summary string `json:"summary"`
	// Because are the single reasons; empty if everything is as desired.
	Because []Because `json:"because,omitempty"`
	// Place says why a task is on its node, or why no node accepts it.
	Place *PlaceView `json:"place,omitempty"`
	// Suggestions are the smallest changes that would place the task, or the owner's first task without a place: Waits.
	// Each suggestion is enough alone.
	Suggestions []Suggestion `json:"suggestions,omitempty"`
	Waits       TaskID       `json:"waits,omitempty"`
}

// Because is one reason for a state.
type Because struct {
	About ReasonSubject `json:"about"`
	// Reason is the code of the cause, and Message the sentence.
	Reason  ReasonCode `json:"reason,omitempty"`
	Message string     `json:"message"`
	Task    TaskID     `json:"task,omitempty"`
	Attempt int        `json:"attempt,omitempty"`
	Node    string     `json:"node,omitempty"`
	Since   time.Time  `json:"since,omitzero"`
	// Until is the time of the next evaluation, or a deadline.
	Until time.Time `json:"until,omitzero"`
	// Position is the place of a task that waits for placement among all that do, and Of is their number; of several
	// tasks it is that of the first. 0 if the tasks are held.
	Position int `json:"position,omitempty"`
	Of       int `json:"of,omitempty"`
	// Expected, unless nil, is when a waiting task of a job probably starts; of several tasks it is that of the first.
	Expected *Expected `json:"expected,omitempty"`
	// Log are the last lines of a crashed attempt.
	Log []string `json:"log,omitempty"`
}

// ReasonSubject is what a reason is about.
type ReasonSubject string

// Subjects of reasons, the most important first.
const (
	AboutCrash   ReasonSubject = "crash-looping"
	AboutPlace   ReasonSubject = "place" // a task waits for a node
	AboutHealth  ReasonSubject = "health"
	AboutNode    ReasonSubject = "node"
	AboutRollout ReasonSubject = "rollout"
	AboutGate    ReasonSubject = "gate"
	AboutMove    ReasonSubject = "move" // a task moves to another node
	AboutStop    ReasonSubject = "stop"
	AboutScaling ReasonSubject = "scaling"
)

// Values returns every ReasonSubject, in the order of the constants.
func (ReasonSubject) Values() []ReasonSubject {
	return []ReasonSubject{
		AboutCrash, AboutPlace, AboutHealth, AboutNode, AboutRollout, AboutGate, AboutMove, AboutStop, AboutScaling,
	}
}

// CrashLoop is a task that ends repeatedly.
type CrashLoop struct {
	Task TaskID `json:"task"`
	Node string `json:"node,omitempty"`
	// Times is the number of recorded ends, and Restarts the number of restarts in place of the present attempt.
	Times    int `json:"times"`
	Restarts int `json:"restarts,omitempty"`
	// Message says how the task last ended, and Log holds its last lines.
	Message string    `json:"message,omitempty"`
	Last    time.Time `json:"last,omitzero"`
	Log     []string  `json:"log,omitempty"`
}

package api

import (
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Messages about services while they change: rollouts, scaling, and why something is as it is.

// RolloutView is where the rollout of a service's newest version stands.
type RolloutView struct {
	Cluster string `json:"cluster"`
	Service string `json:"service"`
	// Version is the newest one. Its state is "rolling" while nothing is known of it yet.
	cluster.Version
	// Changed is when the state last changed, or another task became healthy for the first time; unless the rollout has
	// ended, more progress has to come until Deadline.
	Changed  time.Time `json:"changed,omitzero"`
	Deadline time.Time `json:"deadline,omitzero"`
	// Paused says that nothing is begun or given up for it.
	Paused bool `json:"paused,omitempty"`
	// Reverted, unless 0, is the generation that this one takes back: one that failed, or that a user has undone.
	Reverted uint64 `json:"reverted,omitempty"`
	// Desired is how many tasks the service wants, Surge how many there may be beyond that, Least how many have to be
	// healthy, Parallelism how many are replaced at the same time.
	Desired     int `json:"desired"`
	Surge       int `json:"surge"`
	Least       int `json:"least"`
	Parallelism int `json:"parallelism"`
	// Versions are those that tasks run, the newest first; the newest is always among them.
	Versions []VersionCount `json:"versions"`
	// Canaries is nil for a rollout without.
	Canaries *CanaryView `json:"canaries,omitempty"`
	// Gates are those of the update policy, in its order.
	Gates []GateView `json:"gates,omitempty"`
	// LastHealthy is the last version of which all tasks were healthy, apart from the newest one: where an undo or a
	// rollback goes.
	LastHealthy *ServiceVersion `json:"last_healthy,omitempty"`
	// Waits are what it waits for, empty once it has ended.
	Waits []Because `json:"waits,omitempty"`
	// Revision is the service's.
	Revision uint64 `json:"revision"`
}

// VersionCount counts the tasks of one version of a service. Tasks of earlier generations that run what is asked for
// now are of the newest version, and counted there.
type VersionCount struct {
	Generation uint64 `json:"generation"`
	Definition Ref    `json:"definition"`
	// Newest says that it is what the service asks for now; the others are old.
	Newest bool `json:"newest,omitempty"`
	// Desired is how many tasks of the version are wanted in the end, Begun how many live, Running and Healthy how many
	// of these run and are healthy.
	Desired int `json:"desired"`
	Begun   int `json:"begun"`
	Running int `json:"running"`
	Healthy int `json:"healthy"`
}

// CanaryView is how the first tasks of a version do.
type CanaryView struct {
	// Count is how many there are to be, Begun and Healthy how far they are.
	Count   int `json:"count"`
	Begun   int `json:"begun"`
	Healthy int `json:"healthy"`
	// Waiting says that they are healthy and wait to be promoted; Auto that this happens by itself once all gates pass.
	Waiting bool `json:"waiting,omitempty"`
	Auto    bool `json:"auto,omitempty"`
	// Promoted says that they were.
	Promoted bool `json:"promoted,omitempty"`
}

// GateView is a gate with what was last seen of it.
type GateView struct {
	Gate
	// State is "passing", "failing", "waiting" (not looked at often enough yet) or "unknown", where the server that
	// answers was not told.
	State GateState `json:"state"`
	// Result is nil where nothing is known.
	Result *GateResult `json:"result,omitempty"`
}

// GateState is how a gate stands.
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

// UndoRequest asks for an earlier version of a service again.
type UndoRequest struct {
	// Generation of the version; 0 is the last one before the present one of which all tasks were healthy.
	Generation uint64 `json:"generation,omitempty"`
	// From, unless 0, is the generation that is to be undone, as it was read: where another is the newest by now the
	// request is refused with 409, or has been done already. Without From, as without Generation, an undo that is not
	// complete is not undone.
	From uint64 `json:"from,omitempty"`
}

// PromoteRequest goes on with a rollout whose canaries wait.
type PromoteRequest struct {
	// Generation, unless 0, is the one whose canaries are meant, as it was read: where another is the newest by now the
	// request is refused with 409.
	Generation uint64 `json:"generation,omitempty"`
}

// RolloutHistory are the versions of a service that are remembered.
type RolloutHistory struct {
	Cluster string `json:"cluster"`
	Service string `json:"service"`
	// Versions, the newest first: the present one, and at most cluster.MaxVersions before it.
	Versions []VersionView `json:"versions"`
	Revision uint64        `json:"revision"`
}

// VersionView is a version of a service with what it changed.
type VersionView struct {
	cluster.Version
	// Current says that it is what the service asks for now.
	Current bool `json:"current,omitempty"`
	// Fields are those in which its task definition differs from that of the version before it, ordered by path. It is
	// empty for a restart, and where one of the two is not known.
	Fields []FieldChange `json:"fields,omitempty"`
	// Note says why there are no fields.
	Note string `json:"note,omitempty"`
}

// ScaleView is the count of a service, and what changes it.
type ScaleView struct {
	Cluster string `json:"cluster"`
	Service string `json:"service"`
	// Count is how many tasks the service wants now, Running and Healthy how many of these there are.
	Count   int `json:"count"`
	Running int `json:"running"`
	Healthy int `json:"healthy"`
	// Begin is the count that the service's own spec holds: with scaling where it begins.
	Begin int `json:"begin"`
	// Min and Max are the bounds of scaling, without what its schedules make of them. They are nil without scaling.
	Min *int `json:"min,omitempty"`
	Max *int `json:"max,omitempty"`
	// Scaling is the policy; nil for a service that is scaled by hand alone.
	Scaling   *Scaling `json:"scaling,omitempty"`
	Suspended bool     `json:"suspended,omitempty"`
	// At is when the count last changed by itself, and Message why it is as it is.
	At      time.Time `json:"at,omitzero"`
	Message string    `json:"message,omitempty"`
	// Recent are the last changes, newest first.
	Recent []ScaleChange `json:"recent,omitempty"`
	// Targets are those of the policy with what is measured now.
	Targets []TargetView `json:"targets,omitempty"`
	// Tasks are what single tasks use, where their agents told the server that answers.
	Tasks []TaskUse `json:"tasks,omitempty"`
	// Revision is the service's.
	Revision uint64 `json:"revision"`
}

// TargetView is a target of scaling with what is measured now.
type TargetView struct {
	ScaleTarget
	// Value is what the metric is, as the target says it; nil where the server that answers does not know it. Message
	// says why then, or what it is the mean of.
	Value   *float64  `json:"value,omitempty"`
	Message string    `json:"message,omitempty"`
	At      time.Time `json:"at,omitzero"`
	// Wish is how many tasks' worth of load that is, before windows, pace and bounds.
	Wish int `json:"wish,omitempty"`
}

// TaskUse is what one attempt of a task uses.
type TaskUse struct {
	TaskStats
	Node string `json:"node"`
}

// Explanation says why something is as it is, the weightiest reason first.
type Explanation struct {
	// Owner is the service or the job, Task the task where one was asked for.
	Owner OwnerRef `json:"owner"`
	Task  TaskID   `json:"task,omitempty"`
	// State is the owner's or the task's.
	State string `json:"state"`
	// Summary says all of it in a sentence.
	Summary string `json:"summary"`
	// Because are the reasons, one by one; empty where all is as desired.
	Because []Because `json:"because,omitempty"`
	// Place says of a task why it stands where it does, or what keeps it off the nodes.
	Place *PlaceView `json:"place,omitempty"`
	// Suggestions are the smallest changes that would let the task in, or the first task of the owner that waits for a
	// place: Waits. Each alone is enough.
	Suggestions []Suggestion `json:"suggestions,omitempty"`
	Waits       TaskID       `json:"waits,omitempty"`
}

// Because is one reason why something is as it is.
type Because struct {
	// About says what the reason is about: "place", "stop", "move", "crash-loop", "health", "node", "rollout", "gate"
	// or "scaling".
	About string `json:"about"`
	// Reason is the code of the cause, and Message the sentence.
	Reason  ReasonCode `json:"reason,omitempty"`
	Message string     `json:"message"`
	Task    TaskID     `json:"task,omitempty"`
	Attempt int        `json:"attempt,omitempty"`
	Node    string     `json:"node,omitempty"`
	Since   time.Time  `json:"since,omitzero"`
	// Until is when it is looked at again, or when a deadline passes.
	Until time.Time `json:"until,omitzero"`
	// Log are the last lines that a crashed attempt wrote.
	Log []string `json:"log,omitempty"`
}

// CrashLoop is a task that ends again and again.
type CrashLoop struct {
	Task TaskID `json:"task"`
	Node string `json:"node,omitempty"`
	// Times is how often it ended among what is remembered, Restarts how often the present attempt was restarted in its
	// place.
	Times    int `json:"times"`
	Restarts int `json:"restarts,omitempty"`
	// Message says how it last ended, and Log holds the last lines that it wrote.
	Message string    `json:"message,omitempty"`
	Last    time.Time `json:"last,omitzero"`
	Log     []string  `json:"log,omitempty"`
}

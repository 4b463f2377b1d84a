package cluster

import "time"

// Update says how a service's tasks are replaced, by rollouts and by all other voluntary stops. Its minimum of healthy
// tasks (Least) is one budget for rollouts, drains, scaling down and rebalancing (P5).
type Update struct {
	// MaxSurge is the number of tasks beyond the count during a replacement, without canaries. Default 1; 0 for
	// definitions with at most one task on a node, and with the order stop-first.
	MaxSurge *Portion `json:"max_surge,omitempty"`
	// MinHealthy is the minimum of healthy tasks: no voluntary stop goes below it. Default 100%, or one less than the
	// count without surge. A portion is rounded up.
	MinHealthy *Portion `json:"min_healthy,omitempty"`
	// Parallelism is the number of tasks that are replaced at the same time. Default 1; a portion is rounded up.
	Parallelism *Portion `json:"parallelism,omitempty"`
	// Stagger is waited between the moment when all tasks begun are healthy and the next ones. Default 0.
	Stagger Duration `json:"stagger,omitempty"`
	// Order says which of two tasks comes first in a replacement. Default stop-first for definitions with at most one
	// task on a node, else start-first. A task with a volume that starts first does so on the node of its predecessor.
	Order UpdateOrder `json:"order,omitempty"`
	// Canaries is the number of tasks of the new version that start beside all old tasks. The rollout continues after
	// they are promoted, by a user or by AutoPromote. Canaries equal to the count make a blue/green rollout. Default 0.
	Canaries *Portion `json:"canaries,omitempty"`
	// AutoPromote promotes the canaries once all of them are healthy and all gates pass.
	AutoPromote bool `json:"auto_promote,omitempty"`
	// HealthyDeadline is the time from placement within which a new task must become healthy, else the rollout fails.
	// Default 5 m.
	HealthyDeadline Duration `json:"healthy_deadline,omitempty"`
	// ProgressDeadline is the longest time of a rollout without another healthy task. Default 10 m.
	ProgressDeadline Duration `json:"progress_deadline,omitempty"`
	// AutoRollback returns to the last healthy version when a rollout fails. Default true.
	AutoRollback *bool `json:"auto_rollback,omitempty"`
	// Gates have to pass before canaries are promoted and before each further batch.
	Gates []Gate `json:"gates,omitempty"`
}

// UpdateOrder says which of two tasks comes first in a replacement.
type UpdateOrder string

// Orders of replacement.
const (
	StartFirst UpdateOrder = "start-first" // the old one is stopped once the new one is healthy
	StopFirst  UpdateOrder = "stop-first"  // the new one is placed once the old one has ended
)

// Values returns every UpdateOrder, in the order of the constants.
func (UpdateOrder) Values() []UpdateOrder {
	return []UpdateOrder{StartFirst, StopFirst}
}

// Gate is a condition on external numbers that a rollout waits for. Either Prometheus and Query, or HTTP is set.
type Gate struct {
	Name string `json:"name"`
	// Prometheus is the base URL of a server that answers Query, an expression in its language with one number as the
	// answer.
	Prometheus string `json:"prometheus,omitempty"`
	Query      string `json:"query,omitempty"`
	// HTTP is a URL whose response is judged, http or https.
	HTTP string `json:"http,omitempty"`
	// Pass is a CEL expression: over "value" (a number) for a query; over "status" (a number), "body" (text) and "json"
	// (the parsed body, if it is JSON) for a response. Default "status >= 200 && status < 300" for HTTP.
	Pass string `json:"pass,omitempty"`
	// Interval is the time between two requests. Default 10 s.
	Interval Duration `json:"interval,omitempty"`
	// Passes is the number of requests in a row that must pass. Default 1.
	Passes int `json:"passes,omitempty"`
	// Failures is the number of requests in a row that do not pass after which the rollout fails. Default 3.
	Failures int `json:"failures,omitempty"`
}

// GateResult is the result of a gate since the newest tasks became healthy. It is soft state.
type GateResult struct {
	Name string `json:"name"`
	// Passes and Failures count the last requests in a row that passed, or did not; one of the two is 0.
	Passes   int `json:"passes"`
	Failures int `json:"failures"`
	// Message is the observed result, such as "value = 0.02: value < 0.01 is false".
	Message string    `json:"message,omitempty"`
	At      time.Time `json:"at,omitzero"`
}

// RolloutState is the progress of a rollout.
type RolloutState string

// States of a rollout. The last three are ends.
const (
	RolloutRolling    RolloutState = "rolling"
	RolloutCanary     RolloutState = "canary" // the canaries are healthy and wait to be promoted
	RolloutComplete   RolloutState = "complete"
	RolloutFailed     RolloutState = "failed"      // it does not continue by itself
	RolloutRolledBack RolloutState = "rolled-back" // it failed, and an earlier version was requested instead
	RolloutSuperseded RolloutState = "superseded"  // another version was requested before it ended
)

// Values returns every RolloutState, in the order of the constants.
func (RolloutState) Values() []RolloutState {
	return []RolloutState{
		RolloutRolling, RolloutCanary, RolloutComplete, RolloutFailed, RolloutRolledBack, RolloutSuperseded,
	}
}

// Ended reports whether no further step of the rollout follows.
func (s RolloutState) Ended() bool {
	return s != RolloutRolling && s != RolloutCanary && s != ""
}

// Version is one version of a service that was rolled out, or that was to be.
type Version struct {
	Generation uint64       `json:"generation"`
	Definition Ref          `json:"definition"`
	State      RolloutState `json:"state"`
	Started    time.Time    `json:"started"`
	Ended      time.Time    `json:"ended,omitzero"`
	// Message explains the state. Reason is the code of a failure, empty if no server recorded it.
	Message string     `json:"message,omitempty"`
	Reason  ReasonCode `json:"reason,omitempty"`
}

// MaxVersions is the number of versions in a rollout's record.
const MaxVersions = 20

// Rollout is the progress of a service's newest version: the record rollout/<cluster>/<service>. Writer: the control
// plane. The newest generation of a service may have no record yet; the control plane is about to write it.
type Rollout struct {
	Version
	// Changed is when the state last changed or another task became healthy for the first time: from then on the
	// progress deadline counts.
	Changed time.Time `json:"changed"`
	// Most is the largest number of tasks of the version that were healthy at the same time.
	Most int `json:"most"`
	// Promoted says that the canaries were promoted, by the user or automatically.
	Promoted bool `json:"promoted,omitempty"`
	// Healthy is the last version whose tasks were all healthy, the target of a rollback.
	Healthy *Version `json:"healthy,omitempty"`
	// History holds earlier versions, newest first, at most MaxVersions.
	History []Version `json:"history,omitempty"`
}

// RolloutWish holds a user's requests about a service's rollout, made by separate commands. Applying a manifest does
// not change it.
type RolloutWish struct {
	// Paused stops the rollout where it is: no task is started or given up for it.
	Paused bool `json:"paused,omitempty"`
	// Promoted is the generation whose canaries were promoted.
	Promoted uint64 `json:"promoted,omitempty"`
	// Reverted, unless 0, is the generation that this one takes back: one that failed, by Berth itself, or any, by the
	// user's undo.
	Reverted uint64 `json:"reverted,omitempty"`
}

// Reschedule is the policy for attempts that failed permanently on their node. The next attempt prefers another node
// and starts after a delay that doubles each time. After Limit failures within Window the task is given up until its
// service changes or a user restarts it.
type Reschedule struct {
	// Limit is the number of failed attempts within Window before the task is given up. 0, the default, is no limit.
	Limit int `json:"limit,omitempty"`
	// Window is the span of time in which Limit counts failed attempts. Default 1 h.
	Window Duration `json:"window,omitempty"`
	// Delay is the wait before the first further attempt. It doubles with each one up to MaxDelay. Default 1 s.
	Delay Duration `json:"delay,omitempty"`
	// MaxDelay is the longest wait before a further attempt. Default 5 m.
	MaxDelay Duration `json:"max_delay,omitempty"`
}

// Defaults of updates and of rescheduling.
const (
	DefaultHealthyDeadline  = Duration(5 * time.Minute)
	DefaultProgressDeadline = Duration(10 * time.Minute)
	DefaultGateInterval     = Duration(10 * time.Second)
	DefaultGateFailures     = 3
	DefaultRescheduleWindow = Duration(time.Hour)
	DefaultRescheduleDelay  = Duration(time.Second)
	DefaultRescheduleMax    = Duration(5 * time.Minute)
)

// DefaultGatePass is the expression of a gate that asks over HTTP and has none.
const DefaultGatePass = "status >= 200 && status < 300" //nolint:gosec // no password

// Limits is an update policy in numbers, for a count of tasks and a definition.
type Limits struct {
	Surge       int // tasks beyond the count
	MinHealthy  int // healthy tasks
	Parallelism int // tasks on their way at the same time, at least 1
	Canaries    int
	StopFirst   bool
}

// Limits returns the policy in numbers. pinned says that a node can run only one task of the definition, see
// TaskDefinition.Pinned. There is always room to replace one task: if neither a surge nor one healthy task less is
// allowed, one healthy task less is.
func (u *Update) Limits(count int, pinned bool) Limits {
	l := Limits{Surge: 1, MinHealthy: count, Parallelism: 1, StopFirst: u.Order == StopFirst || u.Order == "" && pinned}
	if u.MaxSurge != nil {
		l.Surge = u.MaxSurge.Of(count)
	}
	if l.StopFirst {
		l.Surge = 0
	}
	if u.MinHealthy != nil {
		l.MinHealthy = min(count, u.MinHealthy.Of(count))
	}
	if l.Surge == 0 {
		l.MinHealthy = min(l.MinHealthy, max(0, count-1))
	}
	if u.Parallelism != nil {
		l.Parallelism = max(1, u.Parallelism.Of(count))
	}
	if u.Canaries != nil {
		l.Canaries = min(count, u.Canaries.Of(count))
	}
	return l
}

// RollsBack reports whether a failed rollout is taken back by itself.
func (u *Update) RollsBack() bool { return u.AutoRollback == nil || *u.AutoRollback }

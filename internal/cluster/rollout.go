package cluster

import "time"

// Update says how a service's tasks are replaced, by a rollout and by whatever else moves them: the budget of Least
// healthy tasks is one for rollouts, drains, scaling down and rebalancing (P5).
type Update struct {
	// MaxSurge is how many tasks there may be beyond the count while tasks are replaced, canaries apart. Default 1;
	// 0 for definitions of which two cannot live on a node, and with the order stop-first.
	MaxSurge *Portion `json:"max_surge,omitempty"`
	// MinHealthy is how many of the count are healthy at least: Berth gives up no healthy task below it. Default 100%,
	// or one less than the count where there is no surge. A portion is rounded up.
	MinHealthy *Portion `json:"min_healthy,omitempty"`
	// Parallelism is how many tasks are replaced at the same time. Default 1; a portion is rounded up.
	Parallelism *Portion `json:"parallelism,omitempty"`
	// Stagger is waited between the moment when all tasks begun are healthy and the next ones. Default 0.
	Stagger Duration `json:"stagger,omitempty"`
	// Order is what comes first where one task replaces another. Default stop-first for definitions of which two cannot
	// live on a node, else start-first. A task with a volume that starts first does so on the node of the one it
	// replaces.
	Order UpdateOrder `json:"order,omitempty"`
	// Canaries is how many tasks of the new version are begun at first, beside all of the old; the rest waits until
	// somebody promotes them, or AutoPromote. As many as the count is a blue/green rollout. Default 0.
	Canaries *Portion `json:"canaries,omitempty"`
	// AutoPromote goes on by itself once all canaries are healthy and all gates pass.
	AutoPromote bool `json:"auto_promote,omitempty"`
	// HealthyDeadline is how long after its placing a new task may take to become healthy; longer, and the rollout has
	// failed. Default 5 m.
	HealthyDeadline Duration `json:"healthy_deadline,omitempty"`
	// ProgressDeadline is how long a rollout may go without another task becoming healthy. Default 10 m.
	ProgressDeadline Duration `json:"progress_deadline,omitempty"`
	// AutoRollback goes back to the last version that was healthy when a rollout fails. Default true.
	AutoRollback *bool `json:"auto_rollback,omitempty"`
	// Gates have to pass before canaries are promoted and before each further batch.
	Gates []Gate `json:"gates,omitempty"`
}

// UpdateOrder is what comes first where one task replaces another.
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

// Gate is a condition on numbers from outside that a rollout waits for. Either Prometheus and Query, or HTTP is set.
type Gate struct {
	Name string `json:"name"`
	// Prometheus is the base URL of a server that answers Query, an expression in its language with one number as the
	// answer.
	Prometheus string `json:"prometheus,omitempty"`
	Query      string `json:"query,omitempty"`
	// HTTP is a URL that is asked.
	HTTP string `json:"http,omitempty"`
	// Pass is a CEL expression: over "value" (a number) for a query; over "status" (a number), "body" (text) and "json"
	// (what the body holds, if it is JSON) for an answer. Default "status >= 200 && status < 300" for HTTP.
	Pass string `json:"pass,omitempty"`
	// Interval between two looks. Default 10 s.
	Interval Duration `json:"interval,omitempty"`
	// Passes is how many looks in a row must pass; after Failures in a row that do not, the rollout has failed. Default
	// 1 and 3.
	Passes   int `json:"passes,omitempty"`
	Failures int `json:"failures,omitempty"`
}

// GateResult is what the looks at a gate have shown since the newest tasks became healthy. It is soft.
type GateResult struct {
	Name string `json:"name"`
	// Passes and Failures are how many of the last looks in a row passed, or did not; one of the two is 0.
	Passes   int `json:"passes"`
	Failures int `json:"failures"`
	// Message says what was seen, such as "value = 0.02: value < 0.01 is false".
	Message string    `json:"message,omitempty"`
	At      time.Time `json:"at,omitzero"`
}

// RolloutState is where a rollout stands.
type RolloutState string

// States of a rollout. The last three are ends.
const (
	RolloutRolling    RolloutState = "rolling"
	RolloutCanary     RolloutState = "canary" // the canaries are healthy and wait to be promoted
	RolloutComplete   RolloutState = "complete"
	RolloutFailed     RolloutState = "failed"      // it goes no further by itself
	RolloutRolledBack RolloutState = "rolled-back" // it failed, and an earlier version was asked for instead
	RolloutSuperseded RolloutState = "superseded"  // another version was asked for before it ended
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
	// Message says why it is where it is, and Reason, for one that failed, is the code of that; empty where nobody
	// wrote it down.
	Message string     `json:"message,omitempty"`
	Reason  ReasonCode `json:"reason,omitempty"`
}

// MaxVersions is how many versions a rollout's record remembers.
const MaxVersions = 20

// Rollout is where a service's newest version stands: the record rollout/<cluster>/<service>. Writer: the control
// plane. A service whose newest generation has no record yet is about to get one.
type Rollout struct {
	Version
	// Changed is when the state last changed or another task became healthy for the first time: from then on the
	// progress deadline counts.
	Changed time.Time `json:"changed"`
	// Most is how many tasks of the version were healthy at the same time, at most.
	Most int `json:"most"`
	// Promoted says that the canaries were promoted, by the user or by themselves.
	Promoted bool `json:"promoted,omitempty"`
	// Healthy is the last version of which all tasks were healthy: where a rollback goes.
	Healthy *Version `json:"healthy,omitempty"`
	// History are earlier versions, newest first, at most MaxVersions.
	History []Version `json:"history,omitempty"`
}

// RolloutWish is what the user asked of a service's rollout, by commands of their own; applying a manifest does not
// change it.
type RolloutWish struct {
	// Paused holds the rollout where it is: no task is begun or given up for it.
	Paused bool `json:"paused,omitempty"`
	// Promoted is the generation whose canaries were promoted.
	Promoted uint64 `json:"promoted,omitempty"`
	// Reverted, unless 0, is the generation that this one takes back: one that failed, by Berth itself, or any, by the
	// user's undo.
	Reverted uint64 `json:"reverted,omitempty"`
}

// Reschedule is the policy for attempts that failed for good on their node: the next attempt goes, where it can, to
// another node, after a delay that doubles each time. Limit attempts within Window, and the task is given up until its
// service changes or somebody restarts it.
type Reschedule struct {
	// Limit is how many attempts may fail within Window; 0, the default, is no limit.
	Limit  int      `json:"limit,omitempty"`
	Window Duration `json:"window,omitempty"` // default 1 h
	// Delay is waited before the first further attempt, doubled up to MaxDelay. Defaults 1 s and 5 m.
	Delay    Duration `json:"delay,omitempty"`
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
	Least       int // healthy tasks
	Parallelism int // tasks on their way at the same time, at least 1
	Canaries    int
	StopFirst   bool
}

// Limits returns the policy in numbers. Pinned says that of the definition two tasks cannot live on a node, see
// TaskDefinition.Pinned. There is always room for one task to be replaced: where neither surge nor a healthy task less
// is allowed, it is a healthy task less.
func (u *Update) Limits(count int, pinned bool) Limits {
	l := Limits{Surge: 1, Least: count, Parallelism: 1, StopFirst: u.Order == StopFirst || u.Order == "" && pinned}
	if u.MaxSurge != nil {
		l.Surge = u.MaxSurge.Of(count)
	}
	if l.StopFirst {
		l.Surge = 0
	}
	if u.MinHealthy != nil {
		l.Least = min(count, u.MinHealthy.Of(count))
	}
	if l.Surge == 0 {
		l.Least = min(l.Least, max(0, count-1))
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

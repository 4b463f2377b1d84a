package cluster

import (
	"cmp"
	"time"
)

// State is the state of a task's attempt. It is computed from the three records of an attempt (desired, observed,
// outcome); no record holds it.
type State string

// States in the order of a task's life. The last five are terminal.
const (
	StatePending   State = "pending"   // not placed
	StateAssigned  State = "assigned"  // placed; its agent has not reported it
	StatePreparing State = "preparing" // images and directories are being made
	StateStarting  State = "starting"  // a batch task at its start barrier; a service's about to run
	StateRunning   State = "running"
	StateStopping  State = "stopping"
	StateSucceeded State = "succeeded"
	StateFailed    State = "failed"
	StateRejected  State = "rejected"  // the agent could not take it
	StateLost      State = "lost"      // its node fell silent
	StateCancelled State = "cancelled" // it was stopped on request
)

// Values returns every State, in the order of the constants.
func (State) Values() []State {
	return []State{
		StatePending, StateAssigned, StatePreparing, StateStarting, StateRunning, StateStopping, StateSucceeded,
		StateFailed, StateRejected, StateLost, StateCancelled,
	}
}

// Terminal reports whether no move leads out of the state.
func (s State) Terminal() bool {
	switch s {
	case StateSucceeded, StateFailed, StateRejected, StateLost, StateCancelled:
		return true
	case StatePending, StateAssigned, StatePreparing, StateStarting, StateRunning, StateStopping:
	}
	return false
}

// Health is the result of a running task's checks.
type Health string

// Healths: unknown until the first result, or for tasks that do not run.
const (
	HealthUnknown Health = "unknown"
	HealthHealthy Health = "healthy"
	HealthWarning Health = "warning"
	HealthFailing Health = "failing"
)

// Values returns every Health, in the order of the constants.
func (Health) Values() []Health {
	return []Health{HealthUnknown, HealthHealthy, HealthWarning, HealthFailing}
}

// Token orders the control plane's messages to agents (P1.6): by generation of the node's ownership, then incarnation
// of the store, then epoch of the leader.
type Token struct {
	Generation  uint64 `json:"g"`
	Incarnation uint64 `json:"i"`
	Epoch       uint64 `json:"e"`
}

// Compare returns -1, 0 or +1 as t is older than, the same as or newer than u.
func (t Token) Compare(u Token) int {
	return cmp.Or(cmp.Compare(t.Generation, u.Generation),
		cmp.Compare(t.Incarnation, u.Incarnation),
		cmp.Compare(t.Epoch, u.Epoch))
}

// StopClass says whether a stop may wait (P5.1).
type StopClass string

// Classes of stops.
const (
	StopMandatory StopClass = "mandatory" // needs no permit
	StopVoluntary StopClass = "voluntary" // needs a permit where permits are in force
)

// Values returns every StopClass, in the order of the constants.
func (StopClass) Values() []StopClass {
	return []StopClass{StopMandatory, StopVoluntary}
}

// Stop asks an agent to end a task.
type Stop struct {
	Class StopClass `json:"class"`
	// Reason is a code such as "rollout", and Message a sentence for people.
	Reason  ReasonCode `json:"reason"`
	Message string     `json:"message,omitempty"`
	// Permit is the granted request of the agent (P5.2). A voluntary stop without the agent's own newest request is not
	// granted: the agent asks, and runs the task on.
	Permit string `json:"permit,omitempty"`
	// For and ForAttempt, unless empty, name the attempt that was promised the room of this one. The next leader knows
	// the promise from them while the stop is in effect.
	For        TaskID `json:"for,omitempty"`
	ForAttempt int    `json:"for_attempt,omitempty"`
	// Ended says that the attempt's outcome is durable: the agent stops what may still run, removes the container and
	// its data, and reports the task gone (P4.6).
	Ended bool `json:"ended,omitempty"`
}

// Desired is the control plane's intent for one attempt of a task on one node: the record state/<node>/<task>. Before
// the record is projected it is part of a plan record. Writer: the control plane.
type Desired struct {
	Task    TaskID `json:"task"`
	Attempt int    `json:"attempt"` // from 1
	// UUID identifies the attempt; all else may be reused (P3.6).
	UUID  string   `json:"uuid"`
	Node  string   `json:"node"`
	Owner OwnerRef `json:"owner"`
	// Definition is what the task runs. Count is the number of tasks of the service or step, which the task gets to
	// know.
	Definition Ref `json:"definition"`
	Count      int `json:"count"`
	Priority   int `json:"priority"`
	// Ports maps each of the definition's ports to its number on the node.
	Ports map[string]int `json:"ports,omitempty"`
	// Devices are the devices of the node that the task reserves, ordered by ID.
	Devices []DeviceUse `json:"devices,omitempty"`
	// TimeLimit, unless 0, ends the attempt that long after its barrier.
	TimeLimit Duration `json:"time_limit,omitempty"`
	// OnDisconnect is the task's class for silence.
	OnDisconnect OnDisconnect `json:"on_disconnect,omitempty"`
	Token        Token        `json:"token"`
	Placed       time.Time    `json:"placed"`
	// Stop is nil while the task should run. Once set it is never cleared.
	Stop *Stop `json:"stop,omitempty"`
	// Plan is the sequence number of the plan record that placed the task.
	Plan uint64 `json:"plan"`
	// Trace is the traceparent of the placing, see Lifespan.
	Trace string `json:"trace,omitempty"`
	// RequestCounter, unless nil, says where the task counts its requests.
	RequestCounter *RequestCounter `json:"meter,omitempty"`
	// Parameters are the task's values of Step.Parameters, by name. Only assignments have them: a dispatcher takes them
	// from the job of the task's generation.
	Parameters map[string]string `json:"parameters,omitempty"`
}

// RequestCounter says where a task counts its requests: a page in Prometheus' text format that its agent reads, as the
// scaling target of metric requests names it. Empty fields have the defaults of ScaleTarget.
type RequestCounter struct {
	Port   string `json:"port,omitempty"`
	Path   string `json:"path,omitempty"`
	Series string `json:"series,omitempty"`
}

// Batch reports whether the task passes the start barrier and runs to success.
func (d *Desired) Batch() bool { return d.Owner.Kind == KindJob }

// Ended reports whether the attempt's outcome is known to be durable.
func (d *Desired) Ended() bool { return d.Stop != nil && d.Stop.Ended }

// EndedStop returns the stop of an attempt that has a durable outcome and had no stop before.
func EndedStop() *Stop {
	return &Stop{Class: StopMandatory, Reason: ReasonEnded, Message: "the attempt has an outcome", Ended: true}
}

// ContainerState is the state of one container of a task.
type ContainerState string

// States of a container.
const (
	ContainerWaiting ContainerState = "waiting"
	ContainerRunning ContainerState = "running"
	ContainerExited  ContainerState = "exited"
)

// Values returns every ContainerState, in the order of the constants.
func (ContainerState) Values() []ContainerState {
	return []ContainerState{ContainerWaiting, ContainerRunning, ContainerExited}
}

// Exit is the end of a container's process.
type Exit struct {
	// Code is the exit code, 128 + signal where a signal ended it, -1 if it is unknown.
	Code   int       `json:"code"`
	Signal int       `json:"signal,omitempty"`
	OOM    bool      `json:"oom,omitempty"` // the kernel killed it for its memory limit
	At     time.Time `json:"at,omitzero"`
	// Unknown says that the end was not observed (P4.4).
	Unknown bool `json:"unknown,omitempty"`
}

// Success reports whether the process ended by itself with code 0.
func (e Exit) Success() bool { return e.Code == 0 && e.Signal == 0 && !e.OOM && !e.Unknown }

// ContainerStatus is the state of one container, as its agent saw it.
type ContainerStatus struct {
	Name  string         `json:"name"`
	State ContainerState `json:"state"`
	Pid   int            `json:"pid,omitempty"`
	// PidStart is the process's start in clock ticks since boot. Pid and PidStart together identify one process.
	PidStart uint64    `json:"pid_start,omitempty"`
	Started  time.Time `json:"started,omitzero"`
	Restarts int       `json:"restarts,omitempty"`
	OOMs     int       `json:"ooms,omitempty"`
	Exit     *Exit     `json:"exit,omitempty"` // the newest end
}

// Observed is the state of one attempt, as its agent saw it: the record status/<node>/<task>. Writer: the agent,
// through its dispatcher.
type Observed struct {
	Task    TaskID `json:"task"`
	Attempt int    `json:"attempt"`
	UUID    string `json:"uuid"`
	Node    string `json:"node"`
	// Session and Seq order an agent's reports (P6.1).
	Session uint64 `json:"session"`
	Seq     uint64 `json:"seq"`
	// Definition, Count, Ports and Devices are what the attempt runs with, and Plan is the plan record that placed it.
	// The control plane restores a lost desired record from them (P1.7, P3.9). They do not change.
	Definition Ref            `json:"definition,omitzero"`
	Count      int            `json:"count,omitempty"`
	Ports      map[string]int `json:"ports,omitempty"`
	Devices    []DeviceUse    `json:"devices,omitempty"`
	Plan       uint64         `json:"plan,omitempty"`

	State  State  `json:"state"`
	Health Health `json:"health,omitempty"`
	// Reason is the cause of the state, Message a sentence for people.
	Reason   ReasonCode `json:"reason,omitempty"`
	Message  string     `json:"message,omitempty"`
	Started  time.Time  `json:"started,omitzero"`
	Finished time.Time  `json:"finished,omitzero"`
	// Since is when the state or the health last changed.
	Since    time.Time `json:"since,omitzero"`
	Restarts int       `json:"restarts,omitempty"`
	// NextStart is when the containers of an attempt in back-off start again, by the clock of the node; zero otherwise.
	NextStart time.Time `json:"next_start,omitzero"`
	// Containers in the order of the definition.
	Containers []ContainerStatus `json:"containers,omitempty"`
	// LogTail is the end of the output of a failed attempt, at most MaxLogTail bytes.
	LogTail string `json:"log_tail,omitempty"`
	// Ask is the agent's newest request for a permit to stop the attempt, "<session>.<number>" (P5.2). If it differs
	// from the stop's permit, that permit was not used and will not be. Once the agent has used a permit it asks no
	// more.
	Ask string `json:"ask,omitempty"`
	// Gone says that nothing of the attempt is left on the node.
	Gone bool `json:"gone,omitempty"`
}

// MaxLogTail bounds the output that is kept with a failed attempt.
const MaxLogTail = 4096

// Healthy reports whether the task runs and its checks say it is well.
func (o *Observed) Healthy() bool {
	return o != nil && o.State == StateRunning && o.Health == HealthHealthy
}

// Outcome is the end of an attempt: the record attempt/<task>/<n>, written once, and deleted if a lost attempt of a
// service goes on (P6.7). Writer: the control plane.
type Outcome struct {
	Task       TaskID     `json:"task"`
	Attempt    int        `json:"attempt"`
	UUID       string     `json:"uuid"`
	Node       string     `json:"node"`
	Owner      OwnerRef   `json:"owner"`
	Definition Ref        `json:"definition"`
	State      State      `json:"state"` // terminal
	Reason     ReasonCode `json:"reason,omitempty"`
	Message    string     `json:"message,omitempty"`
	// Started reports whether user code may have run: the attempt passed its barrier or, for a service, left the
	// preparing state. Free says that it does not count as a retry.
	Started bool      `json:"started"`
	Free    bool      `json:"free,omitempty"`
	Placed  time.Time `json:"placed,omitzero"`
	Begun   time.Time `json:"begun,omitzero"`
	Ended   time.Time `json:"ended"`
	Exit    *Exit     `json:"exit,omitempty"`
	LogTail string    `json:"log_tail,omitempty"`
}

// Attempt joins the records of one attempt, with the revisions that a plan compares. A missing record is nil with
// revision 0.
type Attempt struct {
	Desired  *Desired
	Observed *Observed
	Outcome  *Outcome
	// DesiredRev is 0 while the attempt is part of a plan record only.
	DesiredRev, ObservedRev uint64
}

package cluster

import (
	"strings"
	"time"
)

// ReasonCode is a typed cause, the same in records, events, metrics and answers.
type ReasonCode string

// Causes of stops, outcomes and waits. The comments are the meanings in docs/reference/reasons.md. The sentences of
// refusals are in logic/scheduler/sentence.go.
const (
	ReasonRollout       ReasonCode = "rollout"           // replaced by a newer generation
	ReasonScaleDown     ReasonCode = "scale-down"        // more tasks than wanted
	ReasonDeleted       ReasonCode = "deleted"           // the owner was deleted or stopped
	ReasonCancelled     ReasonCode = "cancelled"         // the job was cancelled
	ReasonEnded         ReasonCode = "ended"             // the attempt has an outcome
	ReasonReplaced      ReasonCode = "replaced"          // a newer attempt runs elsewhere
	ReasonNodeDown      ReasonCode = "node-down"         // the node fell silent
	ReasonExit          ReasonCode = "exit"              // a container ended
	ReasonOOM           ReasonCode = "oom"               // the kernel killed it for its memory limit
	ReasonUnknownExit   ReasonCode = "unknown-exit"      // the end of the process was not observed (P4.4)
	ReasonTimeLimit     ReasonCode = "time-limit"        // it ran longer than it may
	ReasonRestartLimit  ReasonCode = "restart-limit"     // it ended too often
	ReasonPrepare       ReasonCode = "prepare"           // image, volume or file could not be made
	ReasonStartFailed   ReasonCode = "start-failed"      // the executor could not start it
	ReasonNoProgram     ReasonCode = "program-not-found" // the program of a container does not exist, or cannot be run
	ReasonPortTaken     ReasonCode = "port-taken"        // another program of the node uses its port
	ReasonNoExecutor    ReasonCode = "no-executor"       // the node has no suitable executor
	ReasonUnhealthy     ReasonCode = "unhealthy"         // its checks fail
	ReasonBarrier       ReasonCode = "barrier"           // the start barrier refused it
	ReasonUnkillable    ReasonCode = "unkillable"        // it still runs after SIGKILL
	ReasonBootChanged   ReasonCode = "reboot"            // the machine rebooted
	ReasonRestartAsked  ReasonCode = "restart"           // the user requested it
	ReasonNoNodes       ReasonCode = "no-nodes"          // there is no node at all
	ReasonNodeNotReady  ReasonCode = "node-not-ready"    // the node is not ready
	ReasonCordoned      ReasonCode = "cordoned"          // the operator keeps new tasks away
	ReasonConstraint    ReasonCode = "constraint"        // a required property of the node is not met
	ReasonShortCPU      ReasonCode = "cpu"               // not enough CPU is free
	ReasonShortMemory   ReasonCode = "memory"            // not enough memory is free
	ReasonShortDisk     ReasonCode = "disk"              // not enough disk is free
	ReasonPort          ReasonCode = "port"              // a fixed port is taken by another task, or reserved
	ReasonPortsSpent    ReasonCode = "ports-spent"       // no free port is left to assign
	ReasonAntiAffinity  ReasonCode = "anti-affinity"     // a task of the same owner runs there
	ReasonOldAttempt    ReasonCode = "old-attempt"       // an earlier attempt still runs there (P3.6)
	ReasonHold          ReasonCode = "hold"              // its job is on hold
	ReasonNoDefinition  ReasonCode = "no-definition"     // its task definition does not exist
	ReasonWaitForHealth ReasonCode = "wait-for-health"   // the rollout waits for the last new task
	ReasonDrain         ReasonCode = "drain"             // its node is emptied
	ReasonRecovery      ReasonCode = "recovery"          // the store went back, and the operator must decide
	ReasonForeignWrite  ReasonCode = "foreign-write"     // a foreign program wrote over its record
	ReasonPermit        ReasonCode = "permit"            // its stop waits until enough others are healthy
	ReasonPressure      ReasonCode = "pressure"          // its node is short of memory, and it moves away
	ReasonRebalance     ReasonCode = "rebalance"         // it is better placed elsewhere
	ReasonRescheduled   ReasonCode = "reschedule"        // it failed too often and is given up
	ReasonDeadline      ReasonCode = "deadline"          // it was not healthy, had no progress, or did not end in time
	ReasonGate          ReasonCode = "gate"              // a gate of its rollout did not pass
	ReasonPaused        ReasonCode = "paused"            // its rollout is paused
	ReasonPromotion     ReasonCode = "promotion"         // the canaries wait to be promoted
	ReasonScaling       ReasonCode = "scaling"           // scaling changed the count of its service
	ReasonSchedule      ReasonCode = "schedule"          // a moment of its cron is due
	ReasonMissed        ReasonCode = "missed"            // a moment of its cron passed without a job
	ReasonUnmatched     ReasonCode = "unmatched"         // its daemon does not belong on the node any more
	ReasonPool          ReasonCode = "pool"              // the node is of another pool
	ReasonTaint         ReasonCode = "taint"             // the node has a taint that the task does not tolerate
	ReasonDistinct      ReasonCode = "distinct"          // enough tasks of the same owner share a value of the node
	ReasonSkew          ReasonCode = "skew"              // the spread would be more uneven than it may be
	ReasonRelation      ReasonCode = "relation"          // a required relation to other workloads is not met
	ReasonDevice        ReasonCode = "device"            // not enough devices of the kind are free
	ReasonVolume        ReasonCode = "volume"            // its data is elsewhere, or the node does not share its folder
	ReasonSecret        ReasonCode = "secret"            // a secret that it is handed does not exist
	ReasonGang          ReasonCode = "gang"              // the other tasks of its gang find no place
	ReasonPreempted     ReasonCode = "preempted"         // a task of higher priority takes its place
	ReasonReserved      ReasonCode = "reserved"          // the free capacity there is kept for others
	ReasonAddresses     ReasonCode = "addresses"         // services that it uses moved: it is restarted in place
	ReasonNetwork       ReasonCode = "network"           // the node cannot provide the requested network
	ReasonNeeds         ReasonCode = "needs"             // another step, service or job is needed first
	ReasonParallelism   ReasonCode = "parallelism"       // as many tasks of its step run as may run at the same time
	ReasonQuota         ReasonCode = "quota"             // its cluster holds as much as its quota allows
	ReasonConcurrency   ReasonCode = "concurrency"       // as many tasks or jobs of its group run as may run at a time
	ReasonBackfill      ReasonCode = "backfill"          // the room there is kept for a task that is ahead in the queue
	ReasonTurn          ReasonCode = "turn"              // the queue is long, and its turn comes later
	ReasonPermission    ReasonCode = "permission"        // its cluster lacks a permission that its tasks need
	ReasonScheduler     ReasonCode = "scheduler"         // the external scheduler of its domain decides about it
	ReasonStale         ReasonCode = "stale"             // the state changed since the proposal of a scheduler was made
)

// Refusal is why a task cannot be placed on one node, or on none.
type Refusal struct {
	Code ReasonCode `json:"code"`
	// Short is the missing amount of CPU (milli), memory or disk (bytes). Port is the number of the fixed port.
	Short int64 `json:"short,omitempty"`
	Port  int   `json:"port,omitempty"`
	// Detail names the pool, taint, constraint or other tasks that refuse the task. For a reservation, volume, network,
	// secret or device it is a whole sentence, and for a port that no other task has.
	Detail string `json:"detail,omitempty"`
}

// Placement decisions travel as plan records.

// Placed is one task of a plan record. The field names are short because a plan holds thousands.
type Placed struct {
	Index   int            `json:"i"`
	Attempt int            `json:"n"`
	UUID    string         `json:"u"`
	Node    string         `json:"h"`
	Ports   map[string]int `json:"p,omitempty"`
	// Devices are the devices of the node that the task reserves.
	Devices []DeviceUse `json:"d,omitempty"`
}

// PlanOwner is the part of a plan that belongs to one owner's spec.
type PlanOwner struct {
	Owner        OwnerRef     `json:"owner"`
	Rev          uint64       `json:"rev"` // of the spec, compared by the commit
	Generation   uint64       `json:"gen"`
	Step         string       `json:"step,omitempty"`
	Definition   Ref          `json:"def"`
	Count        int          `json:"count"`
	Priority     int          `json:"prio"`
	TimeLimit    Duration     `json:"limit,omitempty"`
	OnDisconnect OnDisconnect `json:"disc,omitempty"`
	// Trace is the traceparent of the placing, see Lifespan.
	Trace string `json:"trace,omitempty"`
	// RequestCounter, unless nil, says where the owner's tasks count their requests.
	RequestCounter *RequestCounter `json:"meter,omitempty"`
	Tasks          []Placed        `json:"tasks"`
	// Whole says that the tasks are a gang, which is written as a whole or not at all. It is not part of the record.
	Whole bool `json:"-"`
}

// PlanRecord is the durable unit of placement: the record plan/<seq> (P3.3). Writer: the control plane.
type PlanRecord struct {
	Seq    uint64      `json:"seq"`
	Token  Token       `json:"token"` // with generation 0; the dispatcher adds the node's own
	At     time.Time   `json:"at"`
	Owners []PlanOwner `json:"owners"`
}

// TaskID returns the id of a task of the owner.
func (o *PlanOwner) TaskID(index int) TaskID {
	if o.Owner.Kind == KindJob {
		return JobTask(o.Owner.Cluster, o.Owner.Name, o.Generation, o.Step, index)
	}
	return ServiceTask(o.Owner.Cluster, o.Owner.Name, o.Generation, index)
}

// Desired returns the desired record of one of the owner's tasks, as the plan implies it.
func (p *PlanRecord) Desired(o *PlanOwner, t *Placed) *Desired {
	return &Desired{
		Task:           o.TaskID(t.Index),
		Attempt:        t.Attempt,
		UUID:           t.UUID,
		Node:           t.Node,
		Owner:          o.Owner,
		Definition:     o.Definition,
		Count:          o.Count,
		Priority:       o.Priority,
		Ports:          t.Ports,
		Devices:        t.Devices,
		TimeLimit:      o.TimeLimit,
		OnDisconnect:   o.OnDisconnect,
		Trace:          o.Trace,
		RequestCounter: o.RequestCounter,
		Token:          p.Token,
		Placed:         p.At,
		Plan:           p.Seq,
	}
}

// Leader is the record leader/<domain> (P1.1). Writer: the server that takes over.
type Leader struct {
	Epoch  uint64 `json:"epoch"`
	Holder string `json:"holder"`
	// Incarnation of the store (P1.7).
	Incarnation uint64    `json:"incarnation"`
	Since       time.Time `json:"since"`
	// Member is the holder's id in the store engine, where the engine runs in its servers (P1.3).
	Member string `json:"member,omitempty"`
}

// Event is one thing that happened, with its cause.
type Event struct {
	// Type is "<noun>.<verb>", such as "task.failed"; with the cluster, owner and task it makes the routing key.
	Type    string     `json:"type"`
	Cluster string     `json:"cluster,omitempty"`
	Owner   *OwnerRef  `json:"owner,omitempty"`
	Task    TaskID     `json:"task,omitempty"`
	Attempt int        `json:"attempt,omitempty"`
	Node    string     `json:"node,omitempty"`
	Reason  ReasonCode `json:"reason,omitempty"`
	Message string     `json:"message,omitempty"`
	// Count is the number of tasks in an event that summarizes many.
	Count int `json:"count,omitempty"`
	// By is the user who requested the change, if any.
	By string `json:"by,omitempty"`
}

// RoutingKey returns "<type>.<cluster>.<owner>.<task>.<node>" with "_" for parts that the event lacks. Dots in names
// become "-".
func (e *Event) RoutingKey() string {
	owner := ""
	if e.Owner != nil {
		owner = e.Owner.Name
	}
	parts := []string{e.Type, e.Cluster, owner, string(e.Task), e.Node}
	for i := 1; i < len(parts); i++ {
		if parts[i] == "" {
			parts[i] = "_"
		}
		parts[i] = strings.ReplaceAll(parts[i], ".", "-")
	}
	return strings.Join(parts, ".")
}

// EventBatch holds the events of one commit: the record event/<id> (P8.1).
type EventBatch struct {
	ID          string    `json:"id"`
	Incarnation uint64    `json:"incarnation"`
	At          time.Time `json:"at"`
	Events      []Event   `json:"events"`
}

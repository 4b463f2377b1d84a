package api

import "github.com/berthd/berth/internal/cluster"

// Records of the control plane and the agents about tasks, nodes, servers and rollouts. Each is the type that the
// server itself uses, under a name for other modules.
type (
	// ContainerState is the state of one container of a task.
	ContainerState = cluster.ContainerState
	// ContainerStatus is an agent's observation of one container.
	ContainerStatus = cluster.ContainerStatus
	// Exit is how a container's process ended.
	Exit = cluster.Exit
	// Health is the result of a running task's checks.
	Health = cluster.Health
	// Promise is room that will be free for a waiting task of a job.
	Promise = cluster.Promise
	// LogStream is one of the two outputs of a program.
	LogStream = cluster.LogStream
	// ServiceState is the state of a service, which follows from its spec and its tasks.
	ServiceState = cluster.ServiceState
	// JobState is the state of a job, which follows from its spec and its tasks.
	JobState = cluster.JobState
	// Requirement says how the steps that a step needs must end.
	Requirement = cluster.Requirement
	// StepState is the state of a step of a job, which follows from the job's spec and its tasks.
	StepState = cluster.StepState
	// State is the state of a task's attempt.
	State = cluster.State
	// EpochToken is the fencing token of messages to agents (P1.6): generation of the node's ownership, then
	// incarnation of the store, then epoch of the leader.
	EpochToken = cluster.Token
	// DiskFact is one file system.
	DiskFact = cluster.DiskFact
	// Drain is the request to empty a node.
	Drain = cluster.Drain
	// Hardware describes the parts of a machine.
	Hardware = cluster.Hardware
	// Drive is one block device.
	Drive = cluster.Drive
	// NetworkInterface is one network interface.
	NetworkInterface = cluster.NetworkInterface
	// PCIDevice is one device on the PCI bus.
	PCIDevice = cluster.PCIDevice
	// HostSetup is how a machine was added.
	HostSetup = cluster.HostSetup
	// FailedUpgrade is an upgrade of an agent that went back.
	FailedUpgrade = cluster.FailedUpgrade
	// Route is a connection from a machine to a server.
	Route = cluster.Route
	// ExecutorFact is an executor with its version.
	ExecutorFact = cluster.ExecutorFact
	// Facts are an agent's findings about its machine.
	Facts = cluster.Facts
	// Host is the operator's settings of a node.
	Host = cluster.Host
	// NodeState is the watcher's verdict on a node.
	NodeState = cluster.NodeState
	// NodeStats is the resource use of a machine, as its agent last measured it.
	NodeStats = cluster.NodeStats
	// Recovery says that the store lost acknowledged writes, and records the operator's decision (P1.7).
	Recovery = cluster.Recovery
	// RecoveryState is the state of a recovery.
	RecoveryState = cluster.RecoveryState
	// Role is the set of rights of a token or certificate.
	Role = cluster.Role
	// Server is one member of the control plane.
	Server = cluster.Server
	// TokenPurpose is the use of a token.
	TokenPurpose = cluster.TokenPurpose
	// Event is one thing that happened, with its cause.
	Event = cluster.Event
	// EventBatch holds the events of one commit.
	EventBatch = cluster.EventBatch
	// ReasonCode is a typed cause, the same in records, events, metrics and answers.
	ReasonCode = cluster.ReasonCode
	// Refusal is why a task cannot be placed on one node, or on none.
	Refusal = cluster.Refusal
	// RefusalCount is a refusal that several nodes share.
	RefusalCount = cluster.RefusalCount
	// RebalanceCounts is the progress of a rebalancing.
	RebalanceCounts = cluster.RebalanceCounts
	// RebalanceCause is the aim of a move.
	RebalanceCause = cluster.RebalanceCause
	// RebalanceMoveState is the state of a move.
	RebalanceMoveState = cluster.RebalanceMoveState
	// Rebalancing is a list of moves in progress or in the past.
	Rebalancing = cluster.Rebalancing
	// RebalancingMove is one task on its way from one node to another.
	RebalancingMove = cluster.RebalancingMove
	// RebalancingState is the state of a rebalancing.
	RebalancingState = cluster.RebalancingState
	// Reservation keeps nodes for some owners for a span of time.
	Reservation = cluster.Reservation
	// ChangeKind is the kind of a suggested change.
	ChangeKind = cluster.ChangeKind
	// Machine is a hypothetical node of the size that a task needs.
	Machine = cluster.Machine
	// Remedy is one change of a waiting task, of a node or of the tasks there.
	Remedy = cluster.Remedy
	// Suggestion is a smallest set of changes that would place a waiting task, or its gang.
	Suggestion = cluster.Suggestion
	// Candidate is a node with the parts of its score.
	Candidate = cluster.Candidate
	// Grounds is the decision trace of a task: why the leader placed it on its node. The leader keeps some thousand in
	// memory, one for the first of all tasks of an owner that one decision placed.
	DecisionTrace = cluster.DecisionTrace
	// RankPart is a part of a node's score for a task; parts of 0 points are left out.
	RankPart = cluster.RankPart
	// Portion is a number of tasks, or a percentage of them: in manifests 2 or "25%".
	Portion = cluster.Portion
	// Bytes is a size.
	Bytes = cluster.Bytes
	// Duration is a time span.
	Duration = cluster.Duration
	// MilliCPU is an amount of processor time in thousandths of one CPU.
	MilliCPU = cluster.MilliCPU
	// Labels are an object's own attributes, for people and for constraints.
	Labels = cluster.Labels
	// TaskID names a task for its whole life.
	TaskID = cluster.TaskID
	// Fault is one error in a value: its path, and the remedy.
	Fault = cluster.Fault
	// Faults is an error that holds all errors of a value.
	Faults = cluster.Faults
)

// Values of ContainerState.
const (
	ContainerWaiting = cluster.ContainerWaiting
	ContainerRunning = cluster.ContainerRunning
	ContainerExited  = cluster.ContainerExited
)

// Values of Health.
const (
	HealthUnknown = cluster.HealthUnknown
	HealthHealthy = cluster.HealthHealthy
	HealthWarning = cluster.HealthWarning
	HealthFailing = cluster.HealthFailing
)

// Values of State.
const (
	StatePending   = cluster.StatePending
	StateAssigned  = cluster.StateAssigned
	StatePreparing = cluster.StatePreparing
	StateStarting  = cluster.StateStarting
	StateRunning   = cluster.StateRunning
	StateStopping  = cluster.StateStopping
	StateSucceeded = cluster.StateSucceeded
	StateFailed    = cluster.StateFailed
	StateRejected  = cluster.StateRejected
	StateLost      = cluster.StateLost
	StateCancelled = cluster.StateCancelled
)

// Values of LogStream.
const (
	StreamStdout = cluster.StreamStdout
	StreamStderr = cluster.StreamStderr
	StreamNone   = cluster.StreamNone
)

// Values of ServiceState.
const (
	ServiceHealthy       = cluster.ServiceHealthy
	ServiceStarting      = cluster.ServiceStarting
	ServiceRollingOut    = cluster.ServiceRollingOut
	ServiceCanary        = cluster.ServiceCanary
	ServicePaused        = cluster.ServicePaused
	ServiceRolloutFailed = cluster.ServiceRolloutFailed
	ServiceCrashLooping  = cluster.ServiceCrashLooping
	ServiceDegraded      = cluster.ServiceDegraded
	ServiceFailing       = cluster.ServiceFailing
	ServiceStopped       = cluster.ServiceStopped
	ServiceStopping      = cluster.ServiceStopping
	ServiceDeleting      = cluster.ServiceDeleting
)

// Values of JobState.
const (
	JobPending   = cluster.JobPending
	JobRunning   = cluster.JobRunning
	JobSucceeded = cluster.JobSucceeded
	JobFailed    = cluster.JobFailed
	JobCancelled = cluster.JobCancelled
	JobDeleting  = cluster.JobDeleting
)

// Values of NodeState.
const (
	NodeAbsent   = cluster.NodeAbsent
	NodeJoining  = cluster.NodeJoining
	NodeReady    = cluster.NodeReady
	NodeSuspect  = cluster.NodeSuspect
	NodeDown     = cluster.NodeDown
	NodeDraining = cluster.NodeDraining
	NodeDrained  = cluster.NodeDrained
)

// Values of RecoveryState.
const (
	RecoveryNeeded = cluster.RecoveryNeeded
	RecoveryAdopt  = cluster.RecoveryAdopt
	RecoveryStop   = cluster.RecoveryStop
)

// Values of Role.
const (
	RoleAdmin     = cluster.RoleAdmin
	RoleOperator  = cluster.RoleOperator
	RoleSubmitter = cluster.RoleSubmitter
	RoleViewer    = cluster.RoleViewer
	RoleNode      = cluster.RoleNode
	RoleServer    = cluster.RoleServer
)

// Values of TokenPurpose.
const (
	TokenAccess = cluster.TokenAccess
	TokenJoin   = cluster.TokenJoin
)

// Values of RebalanceCause, the most important first.
const (
	CauseViolation = cluster.CauseViolation
	CauseEmpty     = cluster.CauseEmpty
	CauseWhole     = cluster.CauseWhole
	CauseEven      = cluster.CauseEven
)

// Values of RebalanceMoveState.
const (
	MoveWaiting = cluster.MoveWaiting
	MoveMoving  = cluster.MoveMoving
	MoveDone    = cluster.MoveDone
	MovePassed  = cluster.MovePassed
)

// Values of RebalancingState.
const (
	RebalancingRunning   = cluster.RebalancingRunning
	RebalancingDone      = cluster.RebalancingDone
	RebalancingCancelled = cluster.RebalancingCancelled
)

// Values of ChangeKind.
const (
	ChangeRelease        = cluster.ChangeRelease
	ChangeWait           = cluster.ChangeWait
	ChangeUncordon       = cluster.ChangeUncordon
	ChangeRevive         = cluster.ChangeRevive
	ChangePort           = cluster.ChangePort
	ChangeFree           = cluster.ChangeFree
	ChangeLower          = cluster.ChangeLower
	ChangeModel          = cluster.ChangeModel
	ChangeDevices        = cluster.ChangeDevices
	ChangeLoosen         = cluster.ChangeLoosen
	ChangeWish           = cluster.ChangeWish
	ChangeApart          = cluster.ChangeApart
	ChangeDistinct       = cluster.ChangeDistinct
	ChangeSkew           = cluster.ChangeSkew
	ChangeConcurrency    = cluster.ChangeConcurrency
	ChangeJobConcurrency = cluster.ChangeJobConcurrency
	ChangeTimeLimit      = cluster.ChangeTimeLimit
	ChangePriority       = cluster.ChangePriority
	ChangeTolerate       = cluster.ChangeTolerate
	ChangeUntaint        = cluster.ChangeUntaint
	ChangeDrop           = cluster.ChangeDrop
	ChangeEnd            = cluster.ChangeEnd
	ChangePool           = cluster.ChangePool
	ChangeUnasked        = cluster.ChangeUnasked
	ChangeJoin           = cluster.ChangeJoin
	ChangeUnreserve      = cluster.ChangeUnreserve
	ChangeQuota          = cluster.ChangeQuota
	ChangeExecutor       = cluster.ChangeExecutor
	ChangeNetwork        = cluster.ChangeNetwork
	ChangeAdd            = cluster.ChangeAdd
)

// Values of Bytes.
const (
	KiB = cluster.KiB
	MiB = cluster.MiB
	GiB = cluster.GiB
	TiB = cluster.TiB
)

// Values of Duration.
const (
	DefaultTTL              = cluster.DefaultTTL
	MinTTL                  = cluster.MinTTL
	MaxTTL                  = cluster.MaxTTL
	DefaultCronWithin       = cluster.DefaultCronWithin
	DefaultGrace            = cluster.DefaultGrace
	DefaultShutdownDelay    = cluster.DefaultShutdownDelay
	MaxShutdownDelay        = cluster.MaxShutdownDelay
	DefaultMinHealthyTime   = cluster.DefaultMinHealthyTime
	DefaultCheckInterval    = cluster.DefaultCheckInterval
	DefaultCheckTimeout     = cluster.DefaultCheckTimeout
	DefaultRestartWindow    = cluster.DefaultRestartWindow
	DefaultRestartDelay     = cluster.DefaultRestartDelay
	DefaultRestartMax       = cluster.DefaultRestartMax
	DefaultLead             = cluster.DefaultLead
	DefaultHealthyDeadline  = cluster.DefaultHealthyDeadline
	DefaultProgressDeadline = cluster.DefaultProgressDeadline
	DefaultGateInterval     = cluster.DefaultGateInterval
	DefaultRescheduleWindow = cluster.DefaultRescheduleWindow
	DefaultRescheduleDelay  = cluster.DefaultRescheduleDelay
	DefaultRescheduleMax    = cluster.DefaultRescheduleMax
	DefaultScaleDownWindow  = cluster.DefaultScaleDownWindow
	DefaultScaleEvery       = cluster.DefaultScaleEvery
	MinCronWithin           = cluster.MinCronWithin
	MaxCronWithin           = cluster.MaxCronWithin
	MaxGrace                = cluster.MaxGrace
	MinCheckInterval        = cluster.MinCheckInterval
	MaxCheckInterval        = cluster.MaxCheckInterval
	MinCheckTimeout         = cluster.MinCheckTimeout
	MaxRestartWindow        = cluster.MaxRestartWindow
	MaxRestartDelay         = cluster.MaxRestartDelay
	MinStay                 = cluster.MinStay
	MinGangDeadline         = cluster.MinGangDeadline
	MaxDeadline             = cluster.MaxDeadline
	MinGateInterval         = cluster.MinGateInterval
	MaxGateInterval         = cluster.MaxGateInterval
	MinTimeLimit            = cluster.MinTimeLimit
	MaxTimeLimit            = cluster.MaxTimeLimit
)

// Values of MilliCPU.
const (
	MaxCPU   = cluster.MaxCPU
	MinLimit = cluster.MinLimit
)

// ServiceTask returns the id of a task of a service.
func ServiceTask(inCluster, service string, generation uint64, index int) TaskID {
	return cluster.ServiceTask(inCluster, service, generation, index)
}

// JobTask returns the id of a task of a job.
func JobTask(inCluster, job string, generation uint64, step string, index int) TaskID {
	return cluster.JobTask(inCluster, job, generation, step, index)
}

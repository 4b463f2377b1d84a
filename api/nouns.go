package api

import "github.com/berthd/berth/internal/cluster"

// Objects that users write, and their parts. Each is the type that the server itself uses, under a name for other
// modules.
type (
	// AntiAffinity is how strictly tasks of one owner avoid each other's nodes.
	AntiAffinity = cluster.AntiAffinity
	// Cluster is a named collection of services and jobs in one domain.
	Cluster = cluster.Cluster
	// Domain is a set of nodes and clusters with a leader of its own.
	Domain = cluster.Domain
	// DomainScheduler is the scheduler that places the tasks of a domain.
	DomainScheduler = cluster.DomainScheduler
	// SchedulerType is what places the tasks of a domain.
	SchedulerType = cluster.SchedulerType
	// SchedulerClaim is the scheduler that places the tasks of a domain now, where the domain has an external one.
	SchedulerClaim = cluster.SchedulerClaim
	// Silence says how long nodes of a domain may be silent.
	Silence = cluster.Silence
	// Constraint is a requirement on a node.
	Constraint = cluster.Constraint
	// ConstraintOp compares a node's attribute with a value.
	ConstraintOp = cluster.ConstraintOp
	// Job runs its steps' tasks to success, once.
	Job = cluster.Job
	// Kind is the kind of an object that users write.
	Kind = cluster.Kind
	// Lifespan is the part of a service's or job's spec that the API server sets at each write; values from clients are
	// ignored.
	Lifespan = cluster.Lifespan
	// OnDisconnect is a class of tasks by their treatment when the node becomes silent.
	OnDisconnect = cluster.OnDisconnect
	// OnViolation is the treatment of tasks whose node no longer meets their constraints, because labels, pool or
	// constraints changed.
	OnViolation = cluster.OnViolation
	// OwnerRef names the service or job that a task belongs to.
	OwnerRef = cluster.OwnerRef
	// Permission allows the tasks of a cluster one kind of access beyond the task.
	Permission = cluster.Permission
	// Placement says where tasks may run (constraints) and should run (all other fields).
	Placement = cluster.Placement
	// Profile is what a machine needs before it is a node.
	Profile = cluster.Profile
	// MachineNeeds are lower limits of a machine.
	MachineNeeds = cluster.MachineNeeds
	// ProfileUser is an account of a machine.
	ProfileUser = cluster.ProfileUser
	// ProfileFile is a file of a machine.
	ProfileFile = cluster.ProfileFile
	// AgentExecutor is the choice of an agent's executor.
	AgentExecutor = cluster.AgentExecutor
	// AgentSettings are settings of the agent of a machine.
	AgentSettings = cluster.AgentSettings
	// Pool is the operator's settings of a pool of nodes.
	Pool = cluster.Pool
	// QueueSettings is how tasks of jobs wait for room.
	QueueSettings = cluster.QueueSettings
	// QueuePolicy is the rule by which tasks of jobs start before tasks that are ahead of them in the queue.
	QueuePolicy = cluster.QueuePolicy
	// Preemption says whether waiting tasks may end others.
	Preemption = cluster.Preemption
	// Service keeps tasks of one definition running.
	Service = cluster.Service
	// Step is a part of a job.
	Step = cluster.Step
	// Strategy is the rule that ranks feasible nodes.
	Strategy = cluster.Strategy
	// Container is one process of a task.
	Container = cluster.Container
	// Demand is the resource request of a whole task.
	Demand = cluster.Demand
	// File is text from the manifest that becomes a file of a container.
	File = cluster.File
	// Mount is the use of a volume in a container.
	Mount = cluster.Mount
	// Pinning is the choice of the CPUs that a container runs on.
	Pinning = cluster.Pinning
	// Port is one port that the task listens on.
	Port = cluster.Port
	// PullPolicy says when an image is pulled.
	PullPolicy = cluster.PullPolicy
	// Ref names a version of a task definition, as "web@3".
	Ref = cluster.Ref
	// Resources are the limits of a container and its reservations.
	Resources = cluster.Resources
	// Restart is the agent's policy for a task that ended by itself. It starts again on the same node, in the same
	// attempt, after a delay that doubles each time.
	Restart = cluster.Restart
	// RestartMode says which ends lead to a restart in place.
	RestartMode = cluster.RestartMode
	// TaskDefinition is an immutable, versioned description of what a task runs.
	TaskDefinition = cluster.TaskDefinition
	// InlineDefinition is a task definition inside of a service or a step.
	InlineDefinition = cluster.InlineDefinition
	// Tmpfs is memory shown as a directory.
	Tmpfs = cluster.Tmpfs
	// Volume is a directory of the node that outlives the task.
	Volume = cluster.Volume
	// Check is a repeated test of a task.
	Check = cluster.Check
	// CheckMeaning is the consequence of a check's result.
	CheckMeaning = cluster.CheckMeaning
	// StatusRange is an HTTP status or a range of statuses that a check accepts.
	StatusRange = cluster.StatusRange
	// CheckType is the kind of test.
	CheckType = cluster.CheckType
	// TTLUpdate is a report to a TTL check.
	Word = cluster.TTLUpdate
	// Discovery says where a healthy task is registered for programs outside of Berth.
	Discovery = cluster.Discovery
	// ConsulService is a registration of a task as a service of Consul.
	ConsulService = cluster.ConsulService
	// ConsulChecks is the choice of who tests a task that is registered in Consul.
	ConsulChecks = cluster.ConsulChecks
	// DiscoveryFact is a system for service discovery that an agent uses.
	DiscoveryFact = cluster.DiscoveryFact
	// Isolation is the separation of a program without an image from its node.
	Isolation = cluster.Isolation
	// NetworkFact says whether tasks of a node can have a network of a mode.
	NetworkFact = cluster.NetworkFact
	// NetworkMode is the kind of network of a task's containers.
	NetworkMode = cluster.NetworkMode
	// MasterKey is the record of a key that wraps data keys.
	MasterKey = cluster.MasterKey
	// SecretChange is a running task's reaction to a new value of a secret.
	SecretChange = cluster.SecretChange
	// SecretType is the use of a secret.
	SecretType = cluster.SecretType
	// SecretUse gives a container a secret of its cluster, in a file or a variable.
	SecretUse = cluster.SecretUse
	// ServiceChange is a running task's reaction to new addresses of a service that it uses.
	ServiceChange = cluster.Change
	// ServiceUse names a service that a container uses. The container starts after a task of that service is healthy.
	ServiceUse = cluster.ServiceUse
	// ImageSource is an archive with an image, or a folder with one.
	ImageSource = cluster.ImageSource
	// Artifact is a file or an archive that the agent fetches before the container is made.
	Artifact = cluster.Artifact
	// FolderFacts are the host volumes and allowed paths of a node, and its sticky volumes.
	FolderFacts = cluster.FolderFacts
	// HostVolume is a directory that a node declares by name.
	HostVolume = cluster.HostVolume
	// StickyCopy says that a node has a copy of a sticky volume.
	StickyCopy = cluster.StickyCopy
	// StorageUse is the size of the volumes of a task.
	StorageUse = cluster.StorageUse
	// VolumeUse is the size of a volume in its file system.
	VolumeUse = cluster.VolumeUse
	// Affinity is a weighted preference for nodes that meet a constraint. A negative weight is an aversion.
	Affinity = cluster.Affinity
	// Device is one device of a node that tasks may reserve.
	Device = cluster.Device
	// DeviceRequest is a task's request for devices of one type.
	DeviceRequest = cluster.DeviceRequest
	// DeviceUse is the part of one device that a task holds.
	DeviceUse = cluster.DeviceUse
	// Distinct limits the tasks of an owner's newest version that share a value of an attribute.
	Distinct = cluster.Distinct
	// Priority is the priority of a service's or a job's tasks: a number from 1 to MaxPriority, or a name in JSON.
	Priority = cluster.Priority
	// ExitCodes says which exit codes of a step's programs are worth a retry.
	ExitCodes = cluster.ExitCodes
	// Parameters are values that differ between the tasks of a step.
	Parameters = cluster.Parameters
	// Concurrency makes the tasks of a step members of a group of which only some run at a time.
	Concurrency = cluster.Concurrency
	// Quota limits what the tasks of a cluster hold together.
	Quota = cluster.Quota
	// QuotaBorrow is how far the tasks of jobs may exceed the limits of a quota.
	QuotaBorrow = cluster.QuotaBorrow
	// Borrowed is what the tasks of a cluster hold above its quota.
	Borrowed = cluster.Borrowed
	// QuotaUse is what the tasks of a cluster hold together.
	QuotaUse = cluster.QuotaUse
	// JobRetries says which failures of a job's tasks no longer count, because the user had the tasks tried again.
	JobRetries = cluster.JobRetries
	// Gang is a group of tasks of a step that run all at the same time or not at all.
	Gang = cluster.Gang
	// Relation attracts a task to the tasks of other workloads, or repels it.
	Relation = cluster.Relation
	// Spread distributes the tasks of an owner's newest version evenly over the values of a node attribute.
	Spread = cluster.Spread
	// SpreadTarget is the wanted share of one value.
	SpreadTarget = cluster.SpreadTarget
	// Taint keeps tasks without a matching toleration away from a node.
	Taint = cluster.Taint
	// TaintEffect is a taint's effect on tasks that do not tolerate it.
	TaintEffect = cluster.TaintEffect
	// Projection says when the attempts of a domain have keys of their own in the store.
	Projection = cluster.Projection
	// PortRange is a port or a range of ports: "22", "8000-8100".
	PortRange = cluster.PortRange
	// Toleration lets a task onto nodes with a taint.
	Toleration = cluster.Toleration
	// Gate is a condition on external numbers that a rollout waits for.
	Gate = cluster.Gate
	// GateResult is the results of a gate since the newest tasks became healthy.
	GateResult = cluster.GateResult
	// Reschedule is the policy for attempts that failed permanently on their node. The next attempt prefers another
	// node, after a delay that doubles each time.
	Reschedule = cluster.Reschedule
	// RolloutState is the state of a rollout.
	RolloutState = cluster.RolloutState
	// RolloutWish is the user's requests for a service's rollout, from separate commands. Applying a manifest does not
	// change it.
	RolloutWish = cluster.RolloutWish
	// Update is the policy for the replacement of a service's tasks. Rollouts, drains, scaling down and rebalancing
	// share its budget, which keeps Least tasks healthy (P5).
	Update = cluster.Update
	// UpdateOrder says whether the old or the new task comes first in a replacement.
	UpdateOrder = cluster.UpdateOrder
	// ServiceVersion is one version of a service in its history.
	ServiceVersion = cluster.Version
	// Pressure says that a node is short of memory, and which attempt its agent suggests to move.
	Pressure = cluster.Pressure
	// ScaleChange is a change of a count.
	ScaleChange = cluster.ScaleChange
	// ScaleMetric is the measured quantity of a target.
	ScaleMetric = cluster.ScaleMetric
	// ScalePace limits the speed of a count's changes in one direction.
	ScalePace = cluster.ScalePace
	// ScaleSchedule sets bounds or the count at recurring moments, until the next moment of any schedule in the list.
	ScaleSchedule = cluster.ScaleSchedule
	// ScaleTarget is the wanted value of a metric for each task.
	ScaleTarget = cluster.ScaleTarget
	// Scaling changes the count of a service between two bounds by load, or by the clock.
	Scaling = cluster.Scaling
	// ServiceMode says how the number of a service's tasks is determined.
	ServiceMode = cluster.ServiceMode
	// TaskStats is the resource use of one attempt, as its agent last measured it.
	TaskStats = cluster.TaskStats
	// Cron makes a job at each of its moments.
	Cron = cluster.Cron
	// Endpoint is a name for the addresses of one port of a service.
	Endpoint = cluster.Endpoint
	// CronConcurrency is the policy for a moment while an earlier job runs.
	CronConcurrency = cluster.CronConcurrency
	// CronJob is the template of a cron's jobs.
	CronJob = cluster.CronJob
	// CronMissed is the policy for missed moments.
	CronMissed = cluster.CronMissed
	// DiskFull says that a disk of images or artifacts is full and that nothing more can be removed.
	DiskFull = cluster.DiskFull
	// DiskSweep lists the images and artifacts that an agent removed from a full disk, since a server last received a
	// list.
	DiskSweep = cluster.DiskSweep
	// ContainerUse is the resource use of one container of a task.
	ContainerUse = cluster.ContainerUse
	// DiskRates are bytes and operations per second.
	DiskRates = cluster.DiskRates
	// NetworkRates are bytes per second.
	NetworkRates = cluster.NetworkRates
	// Rates are the recent rates of a container or task, apart from CPU and memory.
	Rates = cluster.Rates
	// StallRates are percentages.
	StallRates = cluster.StallRates
	// UseDetail is the resource use of an attempt beyond TaskStats.
	UseDetail = cluster.UseDetail
)

// Values of AntiAffinity.
const (
	AntiAffinityNone   = cluster.AntiAffinityNone
	AntiAffinityPrefer = cluster.AntiAffinityPrefer
	AntiAffinityDemand = cluster.AntiAffinityDemand
)

// Values of ConstraintOp.
const (
	OpEqual    = cluster.OpEqual
	OpNotEqual = cluster.OpNotEqual
	OpIn       = cluster.OpIn
	OpNotIn    = cluster.OpNotIn
	OpExists   = cluster.OpExists
	OpLess     = cluster.OpLess
	OpMore     = cluster.OpMore
	OpAtLeast  = cluster.OpAtLeast
	OpAtMost   = cluster.OpAtMost
)

// Values of Kind.
const (
	KindCluster        = cluster.KindCluster
	KindPool           = cluster.KindPool
	KindProfile        = cluster.KindProfile
	KindDomain         = cluster.KindDomain
	KindTaskDefinition = cluster.KindTaskDefinition
	KindService        = cluster.KindService
	KindJob            = cluster.KindJob
	KindCron           = cluster.KindCron
	KindEndpoint       = cluster.KindEndpoint
)

// Values of Projection.
const (
	ProjectionDelayed   = cluster.ProjectionDelayed
	ProjectionImmediate = cluster.ProjectionImmediate
)

// Values of OnDisconnect.
const (
	DisconnectKeep = cluster.DisconnectKeep
	DisconnectWait = cluster.DisconnectWait
)

// Values of OnViolation.
const (
	ViolationKeep = cluster.ViolationKeep
	ViolationMove = cluster.ViolationMove
)

// Values of Preemption.
const (
	PreemptLower = cluster.PreemptLower
	PreemptNever = cluster.PreemptNever
)

// Values of ConsulChecks.
const (
	ConsulTTL    = cluster.ConsulTTL
	ConsulNative = cluster.ConsulNative
)

// Values of Permission.
const (
	PermitCapabilities = cluster.PermitCapabilities
	PermitDevices      = cluster.PermitDevices
	PermitDiscovery    = cluster.PermitDiscovery
	PermitHostNetwork  = cluster.PermitHostNetwork
	PermitHostPath     = cluster.PermitHostPath
	PermitNoIsolation  = cluster.PermitNoIsolation
	PermitRoot         = cluster.PermitRoot
)

// Values of QueuePolicy.
const (
	QueueEASY   = cluster.QueueEASY
	QueueFair   = cluster.QueueFair
	QueueFIFO   = cluster.QueueFIFO
	QueueGreedy = cluster.QueueGreedy
	QueueSJBF   = cluster.QueueSJBF
)

// Values of AgentExecutor.
const (
	AgentAuto       = cluster.AgentAuto
	AgentContainerd = cluster.AgentContainerd
	AgentProcess    = cluster.AgentProcess
)

// Values of Strategy.
const (
	StrategyBinpack = cluster.StrategyBinpack
	StrategySpread  = cluster.StrategySpread
	StrategyWhole   = cluster.StrategyWhole
)

// Values of Pinning.
const (
	PinNone  = cluster.PinNone
	PinCores = cluster.PinCores
	PinNuma  = cluster.PinNuma
)

// Values of PullPolicy.
const (
	PullMissing = cluster.PullMissing
	PullAlways  = cluster.PullAlways
	PullNever   = cluster.PullNever
)

// Values of RestartMode.
const (
	RestartAlways    = cluster.RestartAlways
	RestartOnFailure = cluster.RestartOnFailure
	RestartNever     = cluster.RestartNever
)

// Values of CheckMeaning.
const (
	MeaningReadiness = cluster.MeaningReadiness
	MeaningLiveness  = cluster.MeaningLiveness
	MeaningStartup   = cluster.MeaningStartup
)

// Values of CheckType.
const (
	CheckHTTP = cluster.CheckHTTP
	CheckTCP  = cluster.CheckTCP
	CheckExec = cluster.CheckExec
	CheckGRPC = cluster.CheckGRPC
	CheckTTL  = cluster.CheckTTL
)

// Values of Word.
const (
	WordPass = cluster.TTLPass
	WordWarn = cluster.TTLWarn
	WordFail = cluster.TTLFail
)

// Values of Isolation.
const (
	IsolationNone     = cluster.IsolationNone
	IsolationRequired = cluster.IsolationRequired
)

// Values of NetworkMode.
const (
	NetworkHost   = cluster.NetworkHost
	NetworkBridge = cluster.NetworkBridge
	NetworkNone   = cluster.NetworkNone
)

// Values of SecretChange.
const (
	SecretRestart = cluster.SecretRestart
	SecretSignal  = cluster.SecretSignal
	SecretNoop    = cluster.SecretNoop
)

// Values of SecretType.
const (
	SecretValue    = cluster.SecretValue
	SecretRegistry = cluster.SecretRegistry
)

// Values of ServiceChange.
const (
	ServiceRestart = cluster.ChangeRestart
	ServiceSignal  = cluster.ChangeSignal
	ServiceNoop    = cluster.ChangeNoop
)

// Values of TaintEffect.
const (
	TaintNoSchedule = cluster.TaintNoSchedule
	TaintAvoid      = cluster.TaintAvoid
	TaintEvict      = cluster.TaintEvict
)

// Values of RolloutState.
const (
	RolloutRolling    = cluster.RolloutRolling
	RolloutCanary     = cluster.RolloutCanary
	RolloutComplete   = cluster.RolloutComplete
	RolloutFailed     = cluster.RolloutFailed
	RolloutRolledBack = cluster.RolloutRolledBack
	RolloutSuperseded = cluster.RolloutSuperseded
)

// Values of UpdateOrder.
const (
	StartFirst = cluster.StartFirst
	StopFirst  = cluster.StopFirst
)

// Values of ScaleMetric.
const (
	ScaleCPU        = cluster.ScaleCPU
	ScaleMemory     = cluster.ScaleMemory
	ScaleRequests   = cluster.ScaleRequests
	ScalePrometheus = cluster.ScalePrometheus
)

// Values of ServiceMode.
const (
	ModeReplicas = cluster.ModeReplicas
	ModeDaemon   = cluster.ModeDaemon
)

// Values of CronConcurrency.
const (
	CronForbid  = cluster.CronForbid
	CronAllow   = cluster.CronAllow
	CronReplace = cluster.CronReplace
)

// Values of CronMissed.
const (
	CronSkip = cluster.CronSkip
	CronOnce = cluster.CronOnce
	CronAll  = cluster.CronAll
)

// DefaultCluster is the cluster of objects without a cluster.
const DefaultCluster = cluster.DefaultCluster

// Priorities of tasks.
const (
	DefaultPriority = cluster.DefaultPriority
	MaxPriority     = cluster.MaxPriority
)

// ParseRef reads a task definition as "name@version", or "name" for the newest version.
func ParseRef(s string) (Ref, error) { return cluster.ParseRef(s) }

// ParseMilliCPU reads CPU time: "500m" or "0.5".
func ParseMilliCPU(s string) (MilliCPU, error) { return cluster.ParseMilliCPU(s) }

// ParseBytes reads a size: bytes, or text such as "256MiB".
func ParseBytes(s string) (Bytes, error) { return cluster.ParseBytes(s) }

// ParsePortion reads a number of tasks, or a share of them such as "25%".
func ParsePortion(s string) (Portion, error) { return cluster.ParsePortion(s) }

// ParseTaint reads a taint as "key=value:effect"; the value and the effect may be left out.
func ParseTaint(s string) (Taint, error) { return cluster.ParseTaint(s) }

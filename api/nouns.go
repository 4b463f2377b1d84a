package api

import "github.com/berthd/berth/internal/cluster"

// Nouns that users write: clusters, task definitions, services, jobs, crons, hosts and what they consist of.
// Each is the type that the server itself uses, under a name that other modules can write.
type (
	// AntiAffinity is how strictly tasks of one owner avoid each other's nodes.
	AntiAffinity = cluster.AntiAffinity
	// Cluster is a named collection of services and jobs in one domain.
	Cluster = cluster.Cluster
	// Constraint is a demand on a node.
	Constraint = cluster.Constraint
	// ConstraintOp compares a node's attribute with a value.
	ConstraintOp = cluster.ConstraintOp
	// Job runs its steps' tasks to success, once.
	Job = cluster.Job
	// Kind is the kind of an object that users write.
	Kind = cluster.Kind
	// Lifespan is the part of a service's or job's spec that the API server fills in at each write; what a client sends
	// here is ignored.
	Lifespan = cluster.Lifespan
	// OnDisconnect is a class of tasks by what happens when their node falls silent.
	OnDisconnect = cluster.OnDisconnect
	// OnViolation says what happens to tasks whose node does not meet the demands on it any more: its labels or its
	// pool changed, or the demands did.
	OnViolation = cluster.OnViolation
	// OwnerRef names the service or job that a task belongs to.
	OwnerRef = cluster.OwnerRef
	// Permission allows the tasks of a cluster one thing that reaches beyond the task.
	Permission = cluster.Permission
	// Placement says where tasks may run (constraints) and should run (the rest).
	Placement = cluster.Placement
	// Preemption says for whom tasks that wait may have others end.
	Preemption = cluster.Preemption
	// Service keeps tasks of one definition running.
	Service = cluster.Service
	// Step is a part of a job.
	Step = cluster.Step
	// Strategy says how nodes that fit are ranked.
	Strategy = cluster.Strategy
	// Container is one process of a task.
	Container = cluster.Container
	// Demand is what a whole task asks of a node.
	Demand = cluster.Demand
	// File is text that the manifest carries into a container.
	File = cluster.File
	// Mount shows a volume inside a container.
	Mount = cluster.Mount
	// Pinning says which CPUs of its node a container runs on.
	Pinning = cluster.Pinning
	// Port is one thing the task listens on.
	Port = cluster.Port
	// PullPolicy says when an image is fetched.
	PullPolicy = cluster.PullPolicy
	// Ref names a version of a task definition, as "web@3".
	Ref = cluster.Ref
	// Resources are what a container may use and what is reserved for it.
	Resources = cluster.Resources
	// Restart is the agent's policy for a task that ended by itself: it is started again on the same node, in the same
	// attempt, after a delay that doubles each time.
	Restart = cluster.Restart
	// RestartMode says which ends are followed by a restart in place.
	RestartMode = cluster.RestartMode
	// TaskDefinition is an immutable, versioned description of what a task runs.
	TaskDefinition = cluster.TaskDefinition
	// Tmpfs is memory shown as a directory.
	Tmpfs = cluster.Tmpfs
	// Volume is a directory of the node that outlives the task.
	Volume = cluster.Volume
	// Check tells how a task is.
	Check = cluster.Check
	// CheckMeaning is what follows from what a check shows.
	CheckMeaning = cluster.CheckMeaning
	// CheckType is how a check looks.
	CheckType = cluster.CheckType
	// TTLUpdate is what is said to a check of type ttl.
	Word = cluster.TTLUpdate
	// Isolation says how far a program is kept apart from its node where no image does that.
	Isolation = cluster.Isolation
	// NetworkFact is whether tasks of a node can have a network.
	NetworkFact = cluster.NetworkFact
	// NetworkMode says what network the containers of a task see.
	NetworkMode = cluster.NetworkMode
	// MasterKey tells of a key that wraps data keys.
	MasterKey = cluster.MasterKey
	// SecretChange is what a running task does about a secret that has another value.
	SecretChange = cluster.SecretChange
	// SecretType is what a secret is for.
	SecretType = cluster.SecretType
	// SecretUse hands a secret of the task's cluster to a container, in a file or a variable.
	SecretUse = cluster.SecretUse
	// ServiceChange is what a task of a service does about addresses of services that are others than those that a
	// container was told.
	ServiceChange = cluster.Change
	// ServiceUse names a service that a container uses: it is not started before a task of that is healthy.
	ServiceUse = cluster.ServiceUse
	// Artifact is a file or an archive that the agent fetches before the container is made.
	Artifact = cluster.Artifact
	// FolderFacts is what a node lends to tasks of its own folders, and which volumes it has that stick to a task.
	FolderFacts = cluster.FolderFacts
	// HostVolume is a folder that a node declares by a name.
	HostVolume = cluster.HostVolume
	// StickyCopy says that a node has data of a volume that sticks to a task.
	StickyCopy = cluster.StickyCopy
	// StorageUse is what the volumes of a task take.
	StorageUse = cluster.StorageUse
	// VolumeUse is what a volume takes of its file system.
	VolumeUse = cluster.VolumeUse
	// Affinity is a wish, or with a negative weight a dislike: nodes that meet the constraint are better, or worse, by
	// the weight.
	Affinity = cluster.Affinity
	// Device is one device of a node that tasks may reserve.
	Device = cluster.Device
	// DeviceRequest is what a task asks for of one type of device.
	DeviceRequest = cluster.DeviceRequest
	// DeviceUse is what a task holds of one device of its node.
	DeviceUse = cluster.DeviceUse
	// Distinct bounds how many tasks of an owner's newest version share a value of an attribute.
	Distinct = cluster.Distinct
	// Gang is tasks of a step that run all at the same time or not at all.
	Gang = cluster.Gang
	// Relation draws a task towards the tasks of other workloads, or keeps it away from them.
	Relation = cluster.Relation
	// Spread wants the tasks of an owner's newest version even over the values of an attribute of nodes.
	Spread = cluster.Spread
	// SpreadTarget is the share of one value.
	SpreadTarget = cluster.SpreadTarget
	// Taint keeps tasks away from a node that do not tolerate it.
	Taint = cluster.Taint
	// TaintEffect is what a taint does to tasks that do not tolerate it.
	TaintEffect = cluster.TaintEffect
	// Toleration lets a task onto nodes with a taint.
	Toleration = cluster.Toleration
	// Gate is a condition on numbers from outside that a rollout waits for.
	Gate = cluster.Gate
	// GateResult is what the looks at a gate have shown since the newest tasks became healthy.
	GateResult = cluster.GateResult
	// Reschedule is the policy for attempts that failed for good on their node: the next attempt goes, where it can, to
	// another node, after a delay that doubles each time.
	Reschedule = cluster.Reschedule
	// RolloutState is where a rollout stands.
	RolloutState = cluster.RolloutState
	// RolloutWish is what the user asked of a service's rollout, by commands of their own; applying a manifest does not
	// change it.
	RolloutWish = cluster.RolloutWish
	// Update says how a service's tasks are replaced, by a rollout and by whatever else moves them: the budget of Least
	// healthy tasks is one for rollouts, drains, scaling down and rebalancing (P5).
	Update = cluster.Update
	// UpdateOrder is what comes first where one task replaces another.
	UpdateOrder = cluster.UpdateOrder
	// ServiceVersion is one version of a service that was rolled out, or that was to be.
	ServiceVersion = cluster.Version
	// Pressure says that a node is short of memory, and what its agent suggests to move away.
	Pressure = cluster.Pressure
	// ScaleChange is a change of a count.
	ScaleChange = cluster.ScaleChange
	// ScaleMetric is what a target looks at.
	ScaleMetric = cluster.ScaleMetric
	// ScalePace says how fast a count changes in one direction.
	ScalePace = cluster.ScalePace
	// ScaleSchedule sets bounds or the count from a moment that comes again and again until the next such moment of any
	// schedule in the list.
	ScaleSchedule = cluster.ScaleSchedule
	// ScaleTarget is a value that a metric should have for each task.
	ScaleTarget = cluster.ScaleTarget
	// Scaling changes the count of a service between two bounds by what its tasks use, or by the clock.
	Scaling = cluster.Scaling
	// ServiceMode says how many tasks a service has, and where.
	ServiceMode = cluster.ServiceMode
	// TaskStats is what one attempt uses, as its agent last measured it.
	TaskStats = cluster.TaskStats
	// Cron makes a job at each of its moments.
	Cron = cluster.Cron
	// CronConcurrency is what happens while a job of an earlier moment runs.
	CronConcurrency = cluster.CronConcurrency
	// CronJob is what a cron makes jobs of.
	CronJob = cluster.CronJob
	// CronMissed is what happens to moments that have passed.
	CronMissed = cluster.CronMissed
	// DiskFull says that a disk of images or artifacts is full and that nothing more may be removed from it.
	DiskFull = cluster.DiskFull
	// DiskSweep is what an agent removed of images and artifacts because their disk was full, since a server last heard
	// of a sweep.
	DiskSweep = cluster.DiskSweep
	// ContainerUse is what one container of a task uses.
	ContainerUse = cluster.ContainerUse
	// DiskRates are bytes and operations in a second.
	DiskRates = cluster.DiskRates
	// NetworkRates are bytes in a second.
	NetworkRates = cluster.NetworkRates
	// Rates is what a container or a whole task did lately, beside its CPU and its memory.
	Rates = cluster.Rates
	// StallRates are percentages.
	StallRates = cluster.StallRates
	// UseDetail is what an attempt does beside what TaskStats says.
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
	KindTaskDefinition = cluster.KindTaskDefinition
	KindService        = cluster.KindService
	KindJob            = cluster.KindJob
	KindCron           = cluster.KindCron
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

// Values of Permission.
const (
	PermitCapabilities = cluster.PermitCapabilities
	PermitDevices      = cluster.PermitDevices
	PermitHostNetwork  = cluster.PermitHostNetwork
	PermitHostPath     = cluster.PermitHostPath
	PermitNoIsolation  = cluster.PermitNoIsolation
	PermitRoot         = cluster.PermitRoot
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

// DefaultCluster is the cluster of objects that name none.
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

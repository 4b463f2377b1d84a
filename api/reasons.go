package api

import "github.com/berthd/berth/internal/cluster"

// Reasons why a task waits, stopped or failed, or why a node refused it. A later server may have others.
// docs/reference/reasons.md explains each.
const (
	ReasonRollout       = cluster.ReasonRollout
	ReasonScaleDown     = cluster.ReasonScaleDown
	ReasonDeleted       = cluster.ReasonDeleted
	ReasonCancelled     = cluster.ReasonCancelled
	ReasonEnded         = cluster.ReasonEnded
	ReasonReplaced      = cluster.ReasonReplaced
	ReasonNodeDown      = cluster.ReasonNodeDown
	ReasonExit          = cluster.ReasonExit
	ReasonOOM           = cluster.ReasonOOM
	ReasonUnknownExit   = cluster.ReasonUnknownExit
	ReasonTimeLimit     = cluster.ReasonTimeLimit
	ReasonRestartLimit  = cluster.ReasonRestartLimit
	ReasonPrepare       = cluster.ReasonPrepare
	ReasonStartFailed   = cluster.ReasonStartFailed
	ReasonNoProgram     = cluster.ReasonNoProgram
	ReasonPortTaken     = cluster.ReasonPortTaken
	ReasonNoExecutor    = cluster.ReasonNoExecutor
	ReasonUnhealthy     = cluster.ReasonUnhealthy
	ReasonBarrier       = cluster.ReasonBarrier
	ReasonUnkillable    = cluster.ReasonUnkillable
	ReasonBootChanged   = cluster.ReasonBootChanged
	ReasonRestartAsked  = cluster.ReasonRestartAsked
	ReasonNoNodes       = cluster.ReasonNoNodes
	ReasonNodeNotReady  = cluster.ReasonNodeNotReady
	ReasonCordoned      = cluster.ReasonCordoned
	ReasonConstraint    = cluster.ReasonConstraint
	ReasonShortCPU      = cluster.ReasonShortCPU
	ReasonShortMemory   = cluster.ReasonShortMemory
	ReasonShortDisk     = cluster.ReasonShortDisk
	ReasonPort          = cluster.ReasonPort
	ReasonPortsSpent    = cluster.ReasonPortsSpent
	ReasonAntiAffinity  = cluster.ReasonAntiAffinity
	ReasonOldAttempt    = cluster.ReasonOldAttempt
	ReasonHold          = cluster.ReasonHold
	ReasonNoDefinition  = cluster.ReasonNoDefinition
	ReasonWaitForHealth = cluster.ReasonWaitForHealth
	ReasonDrain         = cluster.ReasonDrain
	ReasonRecovery      = cluster.ReasonRecovery
	ReasonForeignWrite  = cluster.ReasonForeignWrite
	ReasonPermit        = cluster.ReasonPermit
	ReasonPressure      = cluster.ReasonPressure
	ReasonRebalance     = cluster.ReasonRebalance
	ReasonRescheduled   = cluster.ReasonRescheduled
	ReasonDeadline      = cluster.ReasonDeadline
	ReasonGate          = cluster.ReasonGate
	ReasonPaused        = cluster.ReasonPaused
	ReasonPromotion     = cluster.ReasonPromotion
	ReasonScaling       = cluster.ReasonScaling
	ReasonSchedule      = cluster.ReasonSchedule
	ReasonMissed        = cluster.ReasonMissed
	ReasonUnmatched     = cluster.ReasonUnmatched
	ReasonPool          = cluster.ReasonPool
	ReasonTaint         = cluster.ReasonTaint
	ReasonDistinct      = cluster.ReasonDistinct
	ReasonSkew          = cluster.ReasonSkew
	ReasonRelation      = cluster.ReasonRelation
	ReasonDevice        = cluster.ReasonDevice
	ReasonVolume        = cluster.ReasonVolume
	ReasonSecret        = cluster.ReasonSecret
	ReasonGang          = cluster.ReasonGang
	ReasonPreempted     = cluster.ReasonPreempted
	ReasonReserved      = cluster.ReasonReserved
	ReasonAddresses     = cluster.ReasonAddresses
	ReasonNetwork       = cluster.ReasonNetwork
	ReasonBackfill      = cluster.ReasonBackfill
	ReasonTurn          = cluster.ReasonTurn
	ReasonPermission    = cluster.ReasonPermission
)

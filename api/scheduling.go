package api

import "github.com/berthd/berth/internal/cluster"

// The messages between a domain and its external scheduler. Each is the type that the server itself uses.
type (
	// ClaimRequest asks for a domain with an external scheduler.
	ClaimRequest = cluster.ClaimRequest
	// Proposal is what an external scheduler asks of the leader of its domain.
	Proposal = cluster.Proposal
	// ProposalAction is what a command of a proposal asks for.
	ProposalAction = cluster.ProposalAction
	// ProposalCommand is one command of a proposal.
	ProposalCommand = cluster.ProposalCommand
	// ProposalAnswer answers a proposal.
	ProposalAnswer = cluster.ProposalAnswer
	// ProposalResult is the answer to one command.
	ProposalResult = cluster.ProposalResult
	// SchedulingLine is one line of the state of a domain for schedulers.
	SchedulingLine = cluster.SchedulingLine
	// SchedulingDomain is a domain in its state for schedulers.
	SchedulingDomain = cluster.SchedulingDomain
	// SchedulingNode is a node in the state of its domain for schedulers.
	SchedulingNode = cluster.SchedulingNode
	// Room is an amount of CPU, memory and disk, in numbers alone.
	Room = cluster.Room
	// SchedulingTask is an attempt that holds room on a node.
	SchedulingTask = cluster.SchedulingTask
	// SchedulingGroup is the tasks of one service or step with one task definition.
	SchedulingGroup = cluster.SchedulingGroup
	// SchedulingPending is a task without a place, or several of a step with equal requests.
	SchedulingPending = cluster.SchedulingPending
)

// Actions of proposals.
const (
	ProposePlace = cluster.ProposePlace
	ProposeMove  = cluster.ProposeMove
	ProposeEvict = cluster.ProposeEvict
	ProposeWait  = cluster.ProposeWait
)

// Types of schedulers.
const (
	SchedulerBuiltin  = cluster.SchedulerBuiltin
	SchedulerExternal = cluster.SchedulerExternal
)

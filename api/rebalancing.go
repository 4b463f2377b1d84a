package api

import (
	"time"
)

// RebalanceRequest asks the leader to carry out moves.
type RebalanceRequest struct {
	// Moves, as a rebalancing listed them and in its order, at most 500. Task, attempt, from and to of each move are
	// used. Cause, gain and message are only stored for readers.
	Moves []RebalanceMove `json:"moves"`
	// Parallel is the maximum number of moves in progress, 1 to 50. Default 5.
	Parallel int `json:"parallel,omitempty"`
}

// UndoRebalanceRequest asks the leader to reverse the moves of a rebalancing.
type UndoRebalanceRequest struct {
	// Parallel is as in RebalanceRequest.
	Parallel int `json:"parallel,omitempty"`
	// DryRun returns the rebalancing without writing it. Its id is 0.
	DryRun bool `json:"dry_run,omitempty"`
}

// RebalancingView is a list of moves in progress or in the past.
type RebalancingView struct {
	Rebalancing
	Revision uint64 `json:"revision"`
	// Counts is the progress.
	Counts RebalanceCounts `json:"counts"`
	// Waits says what each open move waits for, by task.
	Waits map[TaskID]string `json:"waits,omitempty"`
	// Left says why moves of the reversed rebalancing are missing here. Only the answer to the undo has it.
	Left []RebalanceLeft `json:"left,omitempty"`
}

// RebalanceLeft is a task that is not moved back.
type RebalanceLeft struct {
	Task TaskID `json:"task"`
	Why  string `json:"why"`
}

// RebalancingBrief is a rebalancing without its moves.
type RebalancingBrief struct {
	ID        uint64           `json:"id"`
	State     RebalancingState `json:"state"`
	Created   time.Time        `json:"created"`
	Ended     time.Time        `json:"ended,omitzero"`
	By        string           `json:"by,omitempty"`
	Undoes    uint64           `json:"undoes,omitempty"`
	Cancelled bool             `json:"cancelled,omitempty"`
	Moves     int              `json:"moves"`
	Counts    RebalanceCounts  `json:"counts"`
}

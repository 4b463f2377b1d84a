package api

import (
	"time"
)

// RebalanceRequest asks that moves are carried out.
type RebalanceRequest struct {
	// Moves, as a rebalancing found them, in their order: at most 500. Of each task, attempt, from and to are heeded;
	// cause, gain and message are kept for those who look at it.
	Moves []RebalanceMove `json:"moves"`
	// Parallel is how many of them may be on their way at the same time, 1 to 50. Default 5.
	Parallel int `json:"parallel,omitempty"`
}

// UndoRebalanceRequest asks that the moves of a rebalancing are taken back.
type UndoRebalanceRequest struct {
	// Parallel is as in RebalanceRequest.
	Parallel int `json:"parallel,omitempty"`
	// DryRun asks for the answer alone: the rebalancing that would be made. Its id is 0.
	DryRun bool `json:"dry_run,omitempty"`
}

// RebalancingView is a list of moves that is or was carried out.
type RebalancingView struct {
	Rebalancing
	Revision uint64 `json:"revision"`
	// Counts says how far it got.
	Counts RebalanceCounts `json:"counts"`
	// Waits says what each move waits for that is open, by its task.
	Waits map[TaskID]string `json:"waits,omitempty"`
	// Left says why moves of the rebalancing that this one takes back are not among its own. It is told when it is
	// made.
	Left []RebalanceLeft `json:"left,omitempty"`
}

// RebalanceLeft is a task that is not taken back.
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

package api

// Rebalance is what would be gained if tasks stood elsewhere: a list of moves that can be carried out in its order.
type Rebalance struct {
	// Revision of the state that it was found on.
	Revision uint64 `json:"revision"`
	// Moves, each feasible once those before it are done.
	Moves []RebalanceMove `json:"moves"`
	// Violations are the tasks whose nodes do not meet their constraints any more, ordered by task.
	Violations []RebalanceViolation `json:"violations"`
	// Before and After say how well tasks stand without and with all moves.
	Before RebalanceScore `json:"before"`
	After  RebalanceScore `json:"after"`
	// Considered is how many tasks may be moved, and Stays says why others may not.
	Considered int             `json:"considered"`
	Stays      []RebalanceStay `json:"stays,omitempty"`
	// More says that the list ends for its length or the time that it took: there may be more to gain.
	More bool `json:"more,omitempty"`
}

// RebalanceMove is a task that would stand better on another node.
type RebalanceMove struct {
	Task TaskID `json:"task"`
	// Attempt is the one that would leave. Where moves are handed in it may be 0: whichever runs.
	Attempt int      `json:"attempt,omitempty"`
	Owner   OwnerRef `json:"owner,omitzero"`
	From    string   `json:"from"`
	To      string   `json:"to"`
	// Cause is "violation", "empty", "whole" or "even".
	Cause string `json:"cause"`
	// Gain is in points: 1000 is what it is worth to empty a node. Of a violation it is 0.
	Gain    int    `json:"gain"`
	Message string `json:"message"`
	// StopFirst says that the task stops before it begins elsewhere, as two of it must not live at once.
	StopFirst bool `json:"stop_first,omitempty"`
}

// RebalanceViolation is a task on a node that does not meet its constraints any more.
type RebalanceViolation struct {
	Task  TaskID     `json:"task"`
	Owner OwnerRef   `json:"owner"`
	Node  string     `json:"node"`
	Code  ReasonCode `json:"code"`
	// To is where it would go, empty if it stays; then Message says why, else what its node lacks.
	To      string `json:"to,omitempty"`
	Message string `json:"message"`
}

// RebalanceScore says how well tasks stand. Less is better; the earlier fields weigh more.
type RebalanceScore struct {
	// Violations counts tasks on nodes that do not meet their constraints.
	Violations int `json:"violations"`
	// Used counts the nodes in use, daemons apart, where tasks of strategy binpack may be moved.
	Used int `json:"used"`
	// Stranded, where tasks of strategy whole may be moved, and Uneven, where such of strategy spread may, are in
	// points.
	Stranded int `json:"stranded"`
	Uneven   int `json:"uneven"`
}

// RebalanceStay counts tasks that may not be moved for one reason.
type RebalanceStay struct {
	Why   string `json:"why"`
	Tasks int    `json:"tasks"`
}

package api

// Rebalance is a list of moves to better nodes, in an order in which each is feasible, with their gain.
type Rebalance struct {
	// Revision of the state that the list is based on.
	Revision uint64 `json:"revision"`
	// Moves, each feasible after the ones before.
	Moves []RebalanceMove `json:"moves"`
	// Violations are the tasks whose nodes no longer meet their constraints, ordered by task.
	Violations []RebalanceViolation `json:"violations"`
	// Before and After are the scores without and with all moves.
	Before RebalanceScore `json:"before"`
	After  RebalanceScore `json:"after"`
	// Considered is the number of movable tasks, and Stays counts the others by reason.
	Considered int             `json:"considered"`
	Stays      []RebalanceStay `json:"stays,omitempty"`
	// More says that the list reached its limit of length or time, so further moves may exist.
	More bool `json:"more,omitempty"`
}

// RebalanceMove is the move of one task to a better node.
type RebalanceMove struct {
	Task TaskID `json:"task"`
	// Attempt is the attempt to move. In a request it may be 0, which selects the present one.
	Attempt int      `json:"attempt,omitempty"`
	Owner   OwnerRef `json:"owner,omitzero"`
	From    string   `json:"from"`
	To      string   `json:"to"`
	// Cause may be empty in a request.
	Cause RebalanceCause `json:"cause"`
	// Gain is in points; an emptied node is 1000. A violation has 0.
	Gain    int    `json:"gain"`
	Message string `json:"message"`
	// StopFirst says that the task stops before it starts elsewhere, because two of it must not run concurrently.
	StopFirst bool `json:"stop_first,omitempty"`
}

// RebalanceViolation is a task whose node no longer meets its constraints.
type RebalanceViolation struct {
	Task  TaskID     `json:"task"`
	Owner OwnerRef   `json:"owner"`
	Node  string     `json:"node"`
	Code  ReasonCode `json:"code"`
	// To is the new node, empty if the task stays. Message says why it stays, or else what its node lacks.
	To      string `json:"to,omitempty"`
	Message string `json:"message"`
}

// RebalanceScore is the quality of the present placement. Less is better, and earlier fields weigh more.
type RebalanceScore struct {
	// Violations counts tasks on nodes that do not meet their constraints.
	Violations int `json:"violations"`
	// Used counts the nodes in use, without daemons, if tasks of strategy binpack may be moved.
	Used int `json:"used"`
	// Stranded and Uneven are in points. Stranded counts if tasks of strategy whole may be moved, and Uneven if tasks
	// of strategy spread may be moved.
	Stranded int `json:"stranded"`
	Uneven   int `json:"uneven"`
}

// RebalanceStay counts the tasks that may not be moved for one reason.
type RebalanceStay struct {
	Why   string `json:"why"`
	Tasks int    `json:"tasks"`
}

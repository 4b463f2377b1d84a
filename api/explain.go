package api

// PlaceView says why a task stands on its node, or, with what it waits for, what keeps it off all nodes.
type PlaceView struct {
	// Recorded says that the grounds are those that the leader kept of the decision. Else they are found anew, on the
	// fleet as it is now, as if the task were to be placed: where it was decided long ago, or by a server that leads no
	// more, nothing else is left.
	Recorded      bool          `json:"recorded"`
	DecisionTrace DecisionTrace `json:"grounds"`
	// Node is where the task stands. Grounds that are kept for tasks that were placed together are those of the first,
	// which may stand elsewhere.
	Node string `json:"node,omitempty"`
	// Here says in words why the node was taken, and Others what is worse about the next best nodes, or better, where
	// things have changed.
	Here   string        `json:"here,omitempty"`
	Others []PlaceOption `json:"others,omitempty"`
	// Refusals are those of the other nodes, each in words.
	Refusals []string `json:"refusals,omitempty"`
	// Asked is the answer about the one node that was asked about, as things are now.
	Asked *PlaceOption `json:"asked,omitempty"`
}

// PlaceOption is a node, and how it compares.
type PlaceOption struct {
	Node string `json:"node"`
	// Takes says that the node would take the task.
	Takes bool   `json:"takes"`
	Text  string `json:"text"`
	// Against is all that stands against the task there, in words.
	Against []string `json:"against,omitempty"`
}

package api

// PlaceView says why a task is on its node or, for a waiting task, why no node accepts it.
type PlaceView struct {
	// Recorded says that the leader kept this decision trace. Otherwise it is computed for the present fleet, because
	// the decision is too old or another server led at that time.
	Recorded      bool          `json:"recorded"`
	DecisionTrace DecisionTrace `json:"grounds"`
	// Node is the task's node. The trace of tasks that were placed together is that of the first one, which may be on
	// another node.
	Node string `json:"node,omitempty"`
	// Here says why the node was chosen. Others says how the next best nodes compare.
	Here   string        `json:"here,omitempty"`
	Others []PlaceOption `json:"others,omitempty"`
	// Refusals are the refusals of the other nodes, in words.
	Refusals []string `json:"refusals,omitempty"`
	// Asked is the present answer about the requested node.
	Asked *PlaceOption `json:"asked,omitempty"`
}

// PlaceOption is a node and its comparison.
type PlaceOption struct {
	Node string `json:"node"`
	// Takes says that the node accepts the task.
	Takes bool   `json:"takes"`
	Text  string `json:"text"`
	// Against lists all obstacles to the task on that node, in words.
	Against []string `json:"against,omitempty"`
}

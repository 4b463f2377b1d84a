package cluster

import "time"

// DecisionTrace explains one placement as the leader saw the fleet when the decision began. The leader keeps some
// thousand traces in memory, one for the first task of each owner in a decision.
type DecisionTrace struct {
	// At is the time of the decision. Zero means that there was no decision: the trace describes the fleet of now.
	At time.Time `json:"at,omitzero"`
	// Task is the first placed task, Attempt its attempt, and Node its node.
	Task    TaskID `json:"task"`
	Attempt int    `json:"attempt,omitempty"`
	Node    string `json:"node,omitempty"`
	// Like counts the tasks of the same owner and generation in the decision. Before counts the tasks of others that
	// the decision placed earlier; the trace shows their room as free.
	Like   int `json:"like,omitempty"`
	Before int `json:"before,omitempty"`
	// Nodes counts the nodes of the domain.
	Nodes int `json:"nodes"`
	// Best are some feasible nodes: the chosen one first, then the best of each kind of nodes, in descending order.
	// More counts the nodes whose kind has a feasible node, without those of Best.
	Best []Candidate `json:"best,omitempty"`
	More int         `json:"more,omitempty"`
	// Refusals are the refusals of the other nodes, most nodes first. For nodes of one kind that are all full, it is
	// the refusal of the emptiest.
	Refusals []RefusalCount `json:"refusals,omitempty"`
}

// Candidate is a node with the parts of its rank.
type Candidate struct {
	Node  string     `json:"node"`
	Parts []RankPart `json:"parts,omitempty"`
}

// RankPart is one part of a node's rank for a task. Parts of 0 points are left out. The first part that differs decides
// between two nodes; all preferences together are one part.
type RankPart struct {
	// Name is "failed", "avoid", "affinity …", "spread …", "relation …", "siblings", "balance", "images", "fill",
	// "tasks", or another that a later build knows.
	Name   string `json:"name"`
	Points int64  `json:"points"`
}

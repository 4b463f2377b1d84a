package cluster

import "time"

// Grounds is why a task was placed where it was, as the leader saw it then: kept in its memory for some thousand
// decisions, one for the first of all tasks of an owner that one decision placed. The fleet is as it was when the
// decision began.
type DecisionTrace struct {
	// At is when it was decided; the zero time says that it was not: what is told is the fleet of now.
	At time.Time `json:"at,omitzero"`
	// Task is the first of those that were placed, Attempt its attempt, and Node where it went.
	Task    TaskID `json:"task"`
	Attempt int    `json:"attempt,omitempty"`
	Node    string `json:"node,omitempty"`
	// Like is how many tasks of the same owner and generation the decision placed, and Before how many others it placed
	// before this one: those took up room that the grounds still show as free.
	Like   int `json:"like,omitempty"`
	Before int `json:"before,omitempty"`
	// Nodes is how many there were.
	Nodes int `json:"nodes"`
	// Best are the nodes that came into question, the one that was taken first, then of each kind of nodes the best,
	// the better before the worse; a few at most. More is how many nodes are of kinds of which one would have taken the
	// task, those of Best not counted.
	Best []Candidate `json:"best,omitempty"`
	More int         `json:"more,omitempty"`
	// Refusals are those of the other nodes, most nodes first. Of nodes of one kind that are all full it is that of the
	// emptiest.
	Refusals []RefusalCount `json:"refusals,omitempty"`
}

// Candidate is a node with the parts of its rank.
type Candidate struct {
	Node  string     `json:"node"`
	Parts []RankPart `json:"parts,omitempty"`
}

// RankPart is a part of the rank of a node for a task; parts of 0 points are left out. Of two nodes that is better
// which has more points in the first part in which they differ, where all wishes are one part.
type RankPart struct {
	// Name is "failed", "avoid", "affinity …", "spread …", "relation …", "siblings", "balance", "images", "fill",
	// "tasks", or another that a later build knows.
	Name   string `json:"name"`
	Points int64  `json:"points"`
}

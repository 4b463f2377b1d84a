package cluster

import (
	"encoding/json"
	"time"
	"unicode/utf8"
)

// Limits of a rebalancing. Its record is one value of the store and is written again with each step. The limits keep it
// below about 350 KB; the smallest engine takes 370 KB.
const (
	// MaxRebalanceMoves is the most moves of a rebalancing.
	MaxRebalanceMoves = 500
	// MaxRebalanceBytes is the largest size of a new record, in bytes.
	MaxRebalanceBytes = 200 << 10
	// MaxRebalanceText is the kept length of a sentence about a move, in bytes.
	MaxRebalanceText = 200
	// MaxRebalanceParallel is the most moves that may be open at the same time, DefaultRebalanceParallel the default.
	MaxRebalanceParallel     = 50
	DefaultRebalanceParallel = 5
	// KeptRebalancings is the number of ended rebalancings that a domain keeps.
	KeptRebalancings = 10
)

// Rebalancing is the execution of a list of moves: the record rebalance/<id>. At most one of a domain runs at a time.
//
// Writers: the API server creates it and sets Cancelled and CancelledBy, which are requests. The control plane writes
// all other fields from then on. Both compare the record's revision.
type Rebalancing struct {
	// ID counts the rebalancings of the store.
	ID      uint64    `json:"id"`
	Domain  string    `json:"domain"`
	Created time.Time `json:"created"`
	// By is the user who requested it, as events name people.
	By string `json:"by,omitempty"`
	// Undoes, unless 0, is the rebalancing whose moves this one takes back.
	Undoes uint64 `json:"undoes,omitempty"`
	// Parallel is the most moves that are open at the same time, 1 to MaxRebalanceParallel.
	Parallel int `json:"parallel"`
	// Moves are begun in their order.
	Moves []RebalancingMove `json:"moves"`
	// Cancelled requests that no further move begins. Open moves still finish.
	Cancelled   bool   `json:"cancelled,omitempty"`
	CancelledBy string `json:"cancelled_by,omitempty"`

	State RebalancingState `json:"state"`
	Ended time.Time        `json:"ended,omitzero"`
}

// RebalancingState is the progress of a rebalancing.
type RebalancingState string

// States of a rebalancing. The last two are ends.
const (
	RebalancingRunning   RebalancingState = "running"
	RebalancingDone      RebalancingState = "done"      // every move was carried out or passed over
	RebalancingCancelled RebalancingState = "cancelled" // a user cancelled it before its end
)

// Values returns every RebalancingState, in the order of the constants.
func (RebalancingState) Values() []RebalancingState {
	return []RebalancingState{RebalancingRunning, RebalancingDone, RebalancingCancelled}
}

// RebalancingMove is one task on its way from one node to another.
type RebalancingMove struct {
	Task TaskID `json:"task"`
	// Attempt and UUID identify the attempt that leaves. Once there is a later attempt, the task is not moved again.
	Attempt int    `json:"attempt"`
	UUID    string `json:"uuid"`
	From    string `json:"from"`
	To      string `json:"to"`
	// Cause, Gain in points, and Message are the reason for the move.
	Cause   RebalanceCause `json:"cause,omitempty"`
	Gain    int            `json:"gain,omitempty"`
	Message string         `json:"message,omitempty"`

	State RebalanceMoveState `json:"state"`
	// Reason and Why say why it was passed over.
	Reason ReasonCode `json:"reason,omitempty"`
	Why    string     `json:"why,omitempty"`
	// At is when the state last changed; zero while it waits.
	At time.Time `json:"at,omitzero"`
}

// RebalanceCause is the aim of a move.
type RebalanceCause string

// Causes of moves, the most important first.
const (
	CauseViolation RebalanceCause = "violation" // its node no longer meets its constraints
	CauseEmpty     RebalanceCause = "empty"     // its node can be emptied
	CauseWhole     RebalanceCause = "whole"     // less CPU or memory is stranded
	CauseEven      RebalanceCause = "even"      // nodes, or values of an attribute, are used more evenly
)

// Values returns every RebalanceCause, in the order of the constants.
func (RebalanceCause) Values() []RebalanceCause {
	return []RebalanceCause{CauseViolation, CauseEmpty, CauseWhole, CauseEven}
}

// RebalanceMoveState is the progress of a move.
type RebalanceMoveState string

// States of a move, in their order. The last two are ends.
const (
	MoveWaiting RebalanceMoveState = "waiting"
	// MoveMoving is the state of an open move: the task may leave once it has its place on the other node.
	MoveMoving RebalanceMoveState = "moving"
	// MoveDone is the state of a finished move: the task is healthy on the other node and has left the first.
	MoveDone   RebalanceMoveState = "done"
	MovePassed RebalanceMoveState = "passed-over"
)

// Values returns every RebalanceMoveState, in the order of the constants.
func (RebalanceMoveState) Values() []RebalanceMoveState {
	return []RebalanceMoveState{MoveWaiting, MoveMoving, MoveDone, MovePassed}
}

// Over reports whether nothing more follows for the move.
func (m *RebalancingMove) Over() bool { return m.State == MoveDone || m.State == MovePassed }

// Enter brings the move to a state.
func (m *RebalancingMove) Enter(s RebalanceMoveState, at time.Time) { m.State, m.At = s, at.UTC() }

// Pass passes the move over.
func (m *RebalancingMove) Pass(reason ReasonCode, why string, at time.Time) {
	m.Enter(MovePassed, at)
	m.Reason, m.Why = reason, ClipRebalanceText(why)
}

// ClipRebalanceText cuts a sentence to MaxRebalanceText.
func ClipRebalanceText(text string) string {
	const more = "…"
	if len(text) <= MaxRebalanceText {
		return text
	}
	end := MaxRebalanceText - len(more)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + more
}

// Running reports whether something of it is still to be done.
func (r *Rebalancing) Running() bool { return r.State == RebalancingRunning }

// RebalanceCounts is the progress of a rebalancing.
type RebalanceCounts struct {
	Waiting int `json:"waiting"`
	Moving  int `json:"moving"`
	Done    int `json:"done"`
	Passed  int `json:"passed"`
	// Gain is the total gain of the finished moves, in points.
	Gain int `json:"gain"`
}

// Counts counts the moves by their states.
func (r *Rebalancing) Counts() (c RebalanceCounts) {
	for i := range r.Moves {
		switch m := &r.Moves[i]; m.State {
		case MoveMoving:
			c.Moving++
		case MoveDone:
			c.Done++
			c.Gain += m.Gain
		case MovePassed:
			c.Passed++
		default:
			c.Waiting++
		}
	}
	return c
}

// Validate returns all faults of a new rebalancing as Faults, or nil. It checks the record only; the caller checks that
// the tasks and nodes exist.
func (r *Rebalancing) Validate() error {
	k := newCheck()
	k.at("parallel").within(r.Parallel, 1, MaxRebalanceParallel)
	moves := k.at("moves")
	moves.must(len(r.Moves) > 0, "is empty: want a move, as GET /v1/rebalance lists them")
	if len(r.Moves) > MaxRebalanceMoves {
		moves.fault("holds %d moves, at most %d are allowed: submit the first ones, and the others afterwards",
			len(r.Moves), MaxRebalanceMoves)
		return k.err()
	}
	first := make(map[TaskID]int, len(r.Moves))
	for i := range r.Moves {
		m, at := &r.Moves[i], k.index("moves", i)
		before, twice := first[m.Task]
		_, valid := m.Task.Parts()
		switch {
		case twice:
			at.at("task").fault("%s is moved by moves[%d] already: a task moves once", clip(string(m.Task)), before)
		case !valid:
			at.at("task").fault("%q is no task id, want one such as default.web.1.0", clip(string(m.Task)))
		default:
			first[m.Task] = i
		}
		at.at("attempt").must(m.Attempt >= 0, "is %d, want the number of the attempt that runs", m.Attempt)
		at.at("from").must(ValidNodeName(m.From), "is %q, want the name of a node", clip(m.From))
		at.at("to").must(ValidNodeName(m.To), "is %q, want the name of a node", clip(m.To))
		if m.Cause != "" {
			oneOf(at.at("cause"), m.Cause)
		}
		at.at("to").must(m.From != m.To, "is %s, where the task is already", clip(m.To))
	}
	record, _ := json.Marshal(r) // has only text, numbers and times
	if size := len(record); size > MaxRebalanceBytes {
		moves.fault("takes %s, at most %s are allowed: submit fewer moves", Bytes(size), Bytes(MaxRebalanceBytes))
	}
	return k.err()
}

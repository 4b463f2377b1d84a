// Package rebalance finds running tasks that would be better placed elsewhere. It is a function of values:
//
//	Rebalance(input, options) → an ordered list of moves, each with its gain
//
// The list must be carried out in its order. Each move is found on the fleet as the earlier moves leave it, and the
// scheduler checks every move. If two attempts of a task may live concurrently, the next attempt has room while the old
// one still holds its own. If not (StopFirst), the task gives up its place first. It is then moved only while its owner
// can spare a task.
//
// Four numbers say what is better, see Score. They are compared in this order, and no move makes them worse. Moves that
// empty a node count together:
//
//  1. violations: tasks on nodes that no longer meet their constraints. They move first, to any node that takes them.
//  2. nodes in use, while there are tasks of strategy binpack. A node is emptied as a whole or not at all, and only if
//     all its tasks, daemons aside, are of that strategy. An empty node stays empty.
//  3. stranded: free CPU where memory is used up, or the reverse, while there are tasks of strategy whole.
//  4. uneven: the distance of tasks of strategy spread from their wanted spread, over nodes and over values of
//     attributes.
//
// A task moves only for its own strategy, or because of a violation. Each move lowers the numbers. So a second run on
// the result of a first one finds nothing, and no task moves back and forth.
//
// The reverse list is as safe: where both places of a task were held together on the way there, they are held on the
// way back.
//
// No weighted sum and no single objective replaces the four numbers. With weights, evenness could outweigh a node in
// use, and two runs with different objectives could undo each other forever. A new placement of all tasks would find
// better results with a hundred times the moves, and no possible order of them. Exchanges of two tasks on full nodes
// are not found, and devices are respected but not optimized.
//
// Any server computes the list. No task moves without a request: the leader carries out a list that a user has handed
// in, as the record rebalance/<id>, within the budgets of the services (ADR 0041).
//
// The work is bounded: the evaluation of one node for one class of tasks takes about 10 ns, and Options.Work limits the
// evaluations. Tasks of one owner and definition on one node are handled together.
//
// # Size
//
// A state is the fleet after the moves so far. Each search for moves is a method of it, because each one reads and
// updates the same sums of the score.
package rebalance

import (
	"cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// Task is a running task.
type Task struct {
	// Pending is the request of its next attempt. Avoid need not name the task's own node.
	cluster.Pending
	// UUID names its reservation in the fleet, and Node is the node of the reservation.
	UUID, Node string
	// Unmovable, unless empty, says in a few words why the task must not be moved, such as "of a job". The task counts
	// all the same.
	Unmovable string
	// StopFirst says that two attempts of the task must not live concurrently.
	StopFirst bool
}

// Input is the input of a decision, which does not change it.
type Input struct {
	Fleet *scheduler.Fleet
	// Tasks are the tasks on the fleet, in any order. A reservation without a Task counts only with its room.
	Tasks []Task
	// Spare is how many healthy tasks an owner has above its minimum. Nothing is moved of an owner below 0. Tasks with
	// StopFirst are moved only of owners with at least 1. A missing owner has 0.
	Spare map[cluster.OwnerRef]int
}

// Options tune a decision. The zero value is ready to use.
type Options struct {
	// Scheduler is the control plane's options.
	Scheduler scheduler.Options
	// MinGain is the smallest gain of a move, in points. The default is DefaultMinGain.
	MinGain int
	// MaxMoves limits the number of moves. The default 0 means no limit.
	MaxMoves int
	// Work limits the number of node evaluations. The default is DefaultWork.
	Work int
	// KeepViolations leaves violations in place.
	KeepViolations bool
}

// Defaults of Options.
const (
	// DefaultMinGain is about the gain of moving a task of a tenth of a node from a node that is 60 % full to another.
	// The other node is 40 % full.
	DefaultMinGain = 20
	// DefaultWork takes about half a second.
	DefaultWork = 50_000_000
)

// Points is the gain of emptying a node; all gains are in such points.
const Points = 1000

// Move is a task that would be better placed elsewhere.
type Move struct {
	Task      cluster.TaskID
	Owner     cluster.OwnerRef
	UUID      string // of the moving attempt
	From, To  string // nodes
	Cause     cluster.RebalanceCause
	StopFirst bool
	// Gain is in points; 0 for a violation. The moves that empty a node share its gain.
	Gain int
	// Message gives the reason to people.
	Message string
}

// Violation is a task on a node that no longer meets its constraints.
type Violation struct {
	Task    cluster.TaskID
	Owner   cluster.OwnerRef
	Node    string
	Refusal cluster.Refusal
	// To is the node where it moves. If To is empty the task stays, and Message says why.
	To, Message string
}

// Score says how well tasks are placed. Less is better; earlier fields count more. A field that needs tasks of a
// strategy is 0 if no movable task has the strategy.
type Score struct {
	// Violations is the number of tasks on nodes that do not meet their constraints.
	Violations int
	// Used is the number of nodes with tasks, daemons aside. It needs tasks of strategy binpack.
	Used int
	// Stranded is the sum over all nodes of the difference between free CPU and free memory, as shares of the node, in
	// points. It needs tasks of strategy whole.
	Stranded int
	// Uneven is a sum in points. It adds the squares of each node's fill by resource, and pairs of tasks of one version
	// on one node that prefer to be apart. It also adds the distance of versions from their wanted spread, and unmet
	// preferences. It needs tasks of strategy spread.
	Uneven int
}

// Compare returns -1, 0 or +1 if s is better than, equal to or worse than t.
func (s Score) Compare(t Score) int {
	return cmp.Or(cmp.Compare(s.Violations, t.Violations), cmp.Compare(s.Used, t.Used),
		cmp.Compare(s.Stranded, t.Stranded), cmp.Compare(s.Uneven, t.Uneven))
}

// Result is the result of a decision.
type Result struct {
	Moves      []Move
	Violations []Violation // ordered by task
	// Before and After are the scores before and after all moves.
	Before, After Score
	// Stays counts the tasks that must not be moved, by reason.
	Stays map[string]int
	// Bounded says that the work or the moves were used up: more gain may be possible.
	Bounded bool
}

// Rebalance returns the moves with enough gain. It does not depend on the order of the tasks, and may run concurrently
// with other readers of the fleet.
func Rebalance(in Input, opts Options) Result {
	opts.MinGain = cmp.Or(max(opts.MinGain, 0), DefaultMinGain)
	opts.Work = cmp.Or(max(opts.Work, 0), DefaultWork)
	b := newState(in, opts)
	res := Result{Before: b.score(), Stays: b.stays}
	phases := []func(){
		func() { res.Violations = b.moveViolations(res.Violations) }, // 1. move violations
		b.emptyNodes,                        // 2. empty nodes
		func() { b.improve(wholeAspect{}) }, // 3. reduce stranded resources
		func() { b.improve(evenAspect{}) },  // 4. spread
	}
	// A move may make room for another: repeat until no phase finds a move.
	for next, idle := 0, 0; idle < len(phases) && !b.isOver(); next = (next + 1) % len(phases) {
		before := len(b.moves)
		phases[next]()
		if idle++; len(b.moves) > before {
			idle = 1
		}
	}
	res.After = b.score()
	res.Moves = shorten(in, opts, b.moves)
	for i := range res.Violations {
		v := &res.Violations[i]
		for k := range res.Moves {
			if m := &res.Moves[k]; m.Task == v.Task && v.To != "" {
				v.To = m.To // the last move counts
			}
		}
	}
	res.Bounded = b.bounded || b.isOver()
	return res
}

// Package optimizer finds out which running tasks would stand better elsewhere. It is a function of values:
//
//	Rebalance(input, options) → an ordered list of moves, each with its gain
//
// The list is to be carried out in its order. Each move is found on the fleet as the moves before it leave it, and is
// one that the scheduler itself allows there: it is asked for every one. Where two of a task may live at once, the next
// attempt has room while the last still holds its own; a task of which they may not (StopFirst) gives its place up
// first, and is only moved while its owner can spare one.
//
// What is better is told by four numbers, see Score. They are compared in their order, and no move makes them worse,
// the moves that empty nodes taken together:
//
//  1. violations: tasks on nodes that do not meet their constraints any more. These go first, wherever they may.
//  2. nodes in use, while there are tasks of strategy binpack. A node is emptied as a whole or not at all, if nothing
//     but such tasks is there. An empty one stays so.
//  3. stranded: what is left of CPU beside used up memory, or the other way around; while there are tasks of strategy
//     whole.
//  4. uneven: how far tasks of strategy spread are from the spread that they ask for, over nodes and over the values of
//     attributes.
//
// A task is moved for the sake of its own strategy alone, or because of a violation. As each move brings the numbers
// down, a second run on what a first one left finds nothing, and no task goes back and forth.
//
// The reverse list is carried out as safely: where both places of a task were had at once on the way there, they are on
// the way back.
//
// The work is bounded: a look at one node for one kind of task is about 10 ns, and Options.Work says how many of them
// there may be. Tasks of one owner and definition on one node are looked at together.
package optimizer

import (
	"cmp"
	"slices"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler"
)

// Task is a running task.
type Task struct {
	// Pending is what its next attempt would ask for. Avoid need not name the task's own node.
	cluster.Pending
	// UUID names its reservation in the fleet, and Node is where that is.
	UUID, Node string
	// Stay, unless empty, says in a few words why it must not be moved, such as "of a job". It counts all the same.
	Stay string
	// StopFirst says that two attempts of it must not live at once.
	StopFirst bool
}

// Input is all that a decision looks at. Nothing of it is changed.
type Input struct {
	Fleet *scheduler.Fleet
	// Tasks are those that stand on the fleet, in any order. Of one that is missing nothing is known but what it takes
	// up.
	Tasks []Task
	// Spare is how many healthy tasks an owner has beyond the least that it is to have. Of one with less than none
	// nothing is moved; tasks with StopFirst are moved of those with at least one. An owner that is missing has none to
	// spare.
	Spare map[cluster.OwnerRef]int
}

// Options tune a decision. The zero value is ready to use.
type Options struct {
	// Scheduler is as the control plane has it.
	Scheduler scheduler.Options
	// MinGain is the least that a move has to gain, in points. Default DefaultMinGain.
	MinGain int
	// MaxMoves bounds the list. Default 0: no bound.
	MaxMoves int
	// Work bounds how many looks at nodes there may be. Default DefaultWork.
	Work int
	// KeepViolations leaves tasks in place of which nothing is wrong but their constraints.
	KeepViolations bool
}

// Defaults of Options.
const (
	// DefaultMinGain is what there is to gain by moving a task of a tenth of a node from one that is 60 % full to one
	// that is 40 % full.
	DefaultMinGain = 20
	// DefaultWork is about half a second.
	DefaultWork = 50_000_000
)

// Points is what it is worth to empty a node; all gains are told in such points.
const Points = 1000

// Cause is what a move is for.
type Cause string

// Causes, in the order of their weight.
const (
	CauseViolation Cause = "violation" // its node does not meet its constraints any more
	CauseEmpty     Cause = "empty"     // its node can be emptied
	CauseWhole     Cause = "whole"     // less is left over that nobody can use
	CauseEven      Cause = "even"      // nodes, or values of an attribute, are used more evenly
)

// Move is a task that would stand better elsewhere.
type Move struct {
	Task      cluster.TaskID
	Owner     cluster.OwnerRef
	UUID      string // of the attempt that moves
	From, To  string // nodes
	Cause     Cause
	StopFirst bool
	// Gain is in points, of a violation 0. The moves that empty a node share what that is worth.
	Gain int
	// Message says why, for people.
	Message string
}

// Violation is a task on a node that does not meet its constraints any more.
type Violation struct {
	Task    cluster.TaskID
	Owner   cluster.OwnerRef
	Node    string
	Refusal cluster.Refusal
	// To is where it moves, empty if it stays; then Message says why.
	To, Message string
}

// Score says how well tasks stand. Less is better; the earlier fields weigh more. What is 0 without tasks of a strategy
// is so where none of them may be moved.
type Score struct {
	// Violations is how many tasks stand where their constraints do not allow it.
	Violations int
	// Used is how many nodes have tasks, those of daemons apart. Without tasks of strategy binpack it is 0.
	Used int
	// Stranded is, in points, the sum over all nodes of the CPU that is free beyond the free memory, or the other way
	// around, each as a share of what the node has. Without tasks of strategy whole it is 0.
	Stranded int
	// Uneven is in points, summed: the square of how full each node is, by resource; pairs of tasks of one version that
	// share a node and would rather not; what versions are away from the spread that they ask for; wishes of tasks that
	// their nodes do not meet. Without tasks of strategy spread it is 0.
	Uneven int
}

// Compare returns -1, 0 or +1 as s is better than, the same as or worse than t.
func (s Score) Compare(t Score) int {
	return cmp.Or(cmp.Compare(s.Violations, t.Violations), cmp.Compare(s.Used, t.Used),
		cmp.Compare(s.Stranded, t.Stranded), cmp.Compare(s.Uneven, t.Uneven))
}

// Result is what a decision found.
type Result struct {
	Moves      []Move
	Violations []Violation // ordered by task
	// Before and After are the scores without and with all moves.
	Before, After Score
	// Stays counts the tasks that must not be moved, by why.
	Stays map[string]int
	// Bounded says that the work or the moves were used up: there may be more to gain.
	Bounded bool
}

// Rebalance returns the moves that are worth it. It does not depend on the order of the tasks, and may run concurrently
// with other readers of the fleet.
func Rebalance(in Input, opts Options) Result {
	opts.MinGain = cmp.Or(max(opts.MinGain, 0), DefaultMinGain)
	opts.Work = cmp.Or(max(opts.Work, 0), DefaultWork)
	b := newBoard(in, opts)
	res := Result{Before: b.score(), Stays: b.stays}
	phases := []func(){
		func() { res.Violations = b.violations(res.Violations) }, // 1. move what must not stand where it does
		b.pack,                            // 2. empty nodes
		func() { b.improve(wholesome{}) }, // 3. bring together what is left over
		func() { b.improve(even{}) },      // 4. spread
	}
	// What one moves may make room for another: all have to find nothing, one after the other.
	for next, idle := 0, 0; idle < len(phases) && !b.over(); next = (next + 1) % len(phases) {
		before := len(b.moves)
		phases[next]()
		if idle++; len(b.moves) > before {
			idle = 1
		}
	}
	res.After = b.score()
	res.Moves = shorten(in, opts, b.moves)
	res.Bounded = b.bounded || b.over()
	return res
}

// Undo returns the moves that bring all tasks back to where they were. The gains are those that are lost.
func Undo(moves []Move) []Move {
	back := slices.Clone(moves)
	slices.Reverse(back)
	for i := range back {
		m := &back[i]
		m.From, m.To, m.Gain = m.To, m.From, -m.Gain
		m.Message = "back to where it was"
	}
	return back
}

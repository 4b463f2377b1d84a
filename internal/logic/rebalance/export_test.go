package rebalance

import "slices"

// ScoreOf returns the score of an input. The movable tasks of the input decide which strategies count.
func ScoreOf(in Input, opts Options) Score { return newState(in, opts).score() }

// Undo returns the moves that bring all tasks back. The gains are negated.
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

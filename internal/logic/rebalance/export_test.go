package rebalance

// ScoreOf returns the score of an input. The movable tasks of the input decide which strategies count.
func ScoreOf(in Input, opts Options) Score { return newState(in, opts).score() }

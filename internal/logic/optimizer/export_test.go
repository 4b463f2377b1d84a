package optimizer

// ScoreOf tells how well tasks stand, by the strategies that are at work in another input: as tasks move, those stay
// the same.
func ScoreOf(in Input, opts Options) Score { return newBoard(in, opts).score() }

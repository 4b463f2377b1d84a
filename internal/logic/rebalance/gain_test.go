package rebalance_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/rebalance"
)

// TestGainsAddUpToTheScore compares the gains of moves, which follow from the nodes of a move alone, with the scores of
// the whole fleet before and after. It uses lists of one cause, because a move of one cause changes later numbers too.
func TestGainsAddUpToTheScore(t *testing.T) {
	tried := map[cluster.RebalanceCause]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		res := rebalance.Rebalance(w.input(), rebalance.Options{MinGain: 1})
		if len(res.Moves) == 0 {
			return
		}
		cause, gain := res.Moves[0].Cause, 0
		for i := range res.Moves {
			gain += res.Moves[i].Gain
		}
		if slices.ContainsFunc(res.Moves, func(m rebalance.Move) bool { return m.Cause != cause }) {
			return
		}
		var want int
		switch cause {
		case cluster.CauseViolation:
			want = 0
		case cluster.CauseEmpty:
			want = rebalance.Points * (res.Before.Used - res.After.Used)
		case cluster.CauseWhole:
			want = res.Before.Stranded - res.After.Stranded
		case cluster.CauseEven:
			want = res.Before.Uneven - res.After.Uneven
		}
		tried[cause]++
		const rounding = 2 // points, of a move and of the scores
		if off := gain - want; off > rounding*(len(res.Moves)+1) || off < -rounding*(len(res.Moves)+1) {
			t.Fatalf("%s: the gains add up to %d, and the score falls by %d, from %+v to %+v", shown(res.Moves), gain,
				want, res.Before, res.After)
		}
	})
	for _, cause := range []cluster.RebalanceCause{
		cluster.CauseViolation, cluster.CauseEmpty, cluster.CauseWhole, cluster.CauseEven,
	} {
		if tried[cause] == 0 {
			t.Errorf("no list of moves has the cause %s alone: nothing was tried", cause)
		}
	}
}

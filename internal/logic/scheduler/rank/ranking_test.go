package rank

import (
	"testing"

	"pgregory.net/rapid"
)

// TestRanking compares the ranking with the first minimum of all ranks.
func TestRanking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(0, 70).Draw(t, "nodes")
		draw := func() Rank {
			if rapid.IntRange(0, 4).Draw(t, "refused") == 0 {
				return Refused()
			}
			return Rank{rapid.Uint64Range(0, 2).Draw(t, "tier"), rapid.Uint64Range(0, 2).Draw(t, "fill")}
		}
		nameOrder := make([]uint64, nodes)
		for n, l := range rapid.Permutation(nameOrder).Draw(t, "") {
			nameOrder[n] = l + uint64(n*7%71)
		}
		r := NewRanking(nodes, nameOrder)
		for n := range nodes {
			r.Ranks[n] = draw()
		}
		r.Play()
		for range rapid.IntRange(0, 30).Draw(t, "changes") {
			if nodes > 0 {
				r.Set(int32(rapid.IntRange(0, nodes-1).Draw(t, "node")), draw())
			}
			want := int32(-1)
			for n, k := range r.Ranks {
				if k != Refused() && (want < 0 || k.Less(r.Ranks[want]) || k == r.Ranks[want] &&
					nameOrder[n] < nameOrder[want]) {
					want = int32(n)
				}
			}
			if got := r.Best(); got != want {
				t.Fatalf("best is %d, want %d of %v", got, want, r.Ranks)
			}
		}
	})
}

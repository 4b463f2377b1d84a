package rank

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/logic/packing"
)

// parts are the parts of a tier, the most important first.
type parts struct {
	failed, avoid      bool
	preference         int64 // the highest first
	groupTasks, losses uint64
}

func (p parts) tier() uint64 {
	tier := TierOf(p.preference, p.avoid) + p.groupTasks<<GroupTasksShift + p.losses
	if p.failed {
		tier |= PenaltyBit
	}
	return tier
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// TestPartsOfATier checks the importance of the parts: a difference in one outweighs any differences in later ones.
func TestPartsOfATier(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func() parts {
			return parts{
				failed: rapid.Bool().Draw(t, "failed"), avoid: rapid.Bool().Draw(t, "avoid"),
				preference: rapid.Int64Range(-maxPreferencePoints, maxPreferencePoints).Draw(t, "preference"),
				groupTasks: rapid.Uint64Range(0, MaxGroupTasks).Draw(t, "tasks"),
				losses:     rapid.Uint64Range(0, 1000).Draw(t, "losses"),
			}
		}
		a, b := draw(), draw()
		if rapid.Bool().Draw(t, "near") { // differ in few parts
			b = a
			switch rapid.IntRange(0, 4).Draw(t, "part") {
			case 0:
				b.failed = !a.failed
			case 1:
				b.avoid = !a.avoid
			case 2:
				b.preference = rapid.Int64Range(-maxPreferencePoints, maxPreferencePoints).Draw(t, "other")
			case 3:
				b.groupTasks = rapid.Uint64Range(0, MaxGroupTasks).Draw(t, "others")
			case 4:
				b.losses = rapid.Uint64Range(0, 1000).Draw(t, "other losses")
			}
		}
		want := cmp.Or(compareBools(a.failed, b.failed), compareBools(a.avoid, b.avoid),
			cmp.Compare(b.preference, a.preference), cmp.Compare(a.groupTasks, b.groupTasks),
			cmp.Compare(a.losses, b.losses))
		if got := cmp.Compare(a.tier(), b.tier()); got != want {
			t.Fatalf("%+v compared with %+v: got %d, want %d", a, b, got, want)
		}
	})
}

// TestTiersAtTheEnds checks that points beyond the range count as its ends, and what a node without any part has.
func TestTiersAtTheEnds(t *testing.T) {
	if TierOf(1<<40, false) != TierOf(maxPreferencePoints, false) ||
		TierOf(-1<<40, true) != TierOf(-maxPreferencePoints, true) {
		t.Error("points beyond the range change a tier")
	}
	if got := TierOf(0, false); got != EmptyTier {
		t.Errorf("a node without any part: tier %x, want %x", got, uint64(EmptyTier))
	}
	worst := parts{true, true, -maxPreferencePoints, MaxGroupTasks, packing.NoLoss}
	if r := (Rank{Tier: worst.tier(), Fill: 1<<64 - 1}); !r.Less(Refused()) {
		t.Error("the worst feasible node does not come before one that refuses")
	}
}

// TestCandidatesInOrder compares the heap of candidates with a sorted list.
func TestCandidatesInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := 0
		draw := func() Candidate {
			names++
			return Candidate{
				RankedNode: RankedNode{Rank: Rank{
					Tier: rapid.Uint64Range(0, 2).Draw(t, "tier"), Fill: rapid.Uint64Range(0, 2).Draw(t, "fill"),
				}},
				NameOrder: uint64(names * 7919 % 101),
			}
		}
		var plain []Candidate
		r := CandidateHeap{}
		for range rapid.IntRange(0, 20).Draw(t, "first") {
			x := draw()
			plain, r.Heap = append(plain, x), append(r.Heap, x)
		}
		r.Heapify()
		sortCandidates(plain)
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if len(plain) == 0 || rapid.Bool().Draw(t, "push") && names < 100 {
				x := draw()
				plain = append(plain, x)
				r.Push(x)
			} else {
				r.Pop()
				plain = plain[1:]
			}
			sortCandidates(plain)
			if len(r.Heap) != len(plain) || len(plain) > 0 && r.Heap[0] != plain[0] {
				t.Fatalf("%d candidates, want %d with %+v on top", len(r.Heap), len(plain), plain)
			}
		}
	})
}

func sortCandidates(all []Candidate) {
	slices.SortFunc(all, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(a.Rank.Tier, b.Rank.Tier), cmp.Compare(a.Rank.Fill, b.Rank.Fill),
			cmp.Compare(a.NameOrder, b.NameOrder))
	})
}

package index

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestNames adds and removes names, and checks their order and numbers.
func TestNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := make([]string, 1500)
		o := Names{Of: func(slot int32) string { return texts[slot] }, Order: make([]uint64, len(texts))}
		set := map[int32]bool{}
		step := rapid.SampledFrom([]int{1, 7, 1499}).Draw(t, "step")
		for i := range rapid.IntRange(0, 3000).Draw(t, "changes") {
			slot := int32(i * step % len(texts))
			texts[slot] = fmt.Sprintf("n%04d", slot)
			if set[slot] && i%3 > 0 {
				delete(set, slot)
				o.Remove(slot)
			} else if !set[slot] {
				set[slot] = true
				o.Add(slot)
			}
		}
		var got []int32
		for slot := range o.All {
			if len(got) > 0 && o.Order[slot] <= o.Order[got[len(got)-1]] {
				t.Fatalf("the number of %s is not above that of %s", texts[slot], texts[got[len(got)-1]])
			}
			got = append(got, slot)
		}
		if want := slices.Sorted(maps.Keys(set)); !slices.Equal(got, want) || o.Count != len(want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

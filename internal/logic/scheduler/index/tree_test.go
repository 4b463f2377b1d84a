package index

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
)

// TestTree changes a tree by two owners, and compares each one's tree with a plain list.
func TestTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const slots = 400
		o := Names{Order: make([]uint64, slots)}
		for i := range o.Order {
			o.Order[i] = uint64(i * 7919 % slots)
		}
		first := Editor{Names: &o}
		var root *Page
		plain := map[int32]Entry{}
		change := func(e Editor, root *Page, plain map[int32]Entry) *Page {
			slot := rapid.Int32Range(0, slots-1).Draw(t, "slot")
			if old, found := plain[slot]; found {
				delete(plain, slot)
				return e.Remove(root, old.Key, slot)
			}
			plain[slot] = Entry{
				Key: rapid.Uint64Range(0, 9).Draw(t, "key"), Slot: slot,
				Free: cluster.Demand{
					CPU:    cluster.MilliCPU(rapid.Int64Range(-2, 9).Draw(t, "cpu")),
					Memory: cluster.Bytes(slot % 5),
				},
			}
			return e.Insert(root, plain[slot])
		}
		for range rapid.IntRange(0, 600).Draw(t, "changes") {
			root = change(first, root, plain)
		}
		second, other, others := Editor{Owner: &Owner{}, Names: &o}, root, maps.Clone(plain)
		for range rapid.IntRange(0, 300).Draw(t, "changes of the second") {
			other = change(second, other, others)
		}
		for range 10 {
			searchTree(t, first, root, plain)
			searchTree(t, second, other, others)
		}
	})
}

func searchTree(t *rapid.T, e Editor, root *Page, plain map[int32]Entry) {
	low := rapid.Uint64Range(0, 10).Draw(t, "low")
	high := rapid.Uint64Range(low, 10).Draw(t, "high")
	q := Query{Need: cluster.Demand{
		CPU:    cluster.MilliCPU(rapid.Int64Range(-2, 10).Draw(t, "cpu")),
		Memory: cluster.Bytes(rapid.IntRange(0, 5).Draw(t, "memory")),
	}}
	if odd := rapid.Bool().Draw(t, "odd"); odd {
		q.Suit = func(slot int32) bool { return slot%2 == 1 }
	}
	lowest, highest := int32(-1), int32(-1)
	for slot, en := range plain {
		if en.Key < low || en.Key > high || !q.Fits(en.Free) || q.Suit != nil && !q.Suit(slot) {
			continue
		}
		if lowest < 0 || e.before(en.Key, slot, plain[lowest].Key, lowest) {
			lowest = slot
		}
		if highest < 0 || en.Key > plain[highest].Key || en.Key == plain[highest].Key &&
			e.Names.Order[slot] < e.Names.Order[highest] {
			highest = slot
		}
	}
	slotOf := func(find func(p *Page, low, high uint64) *Entry) int32 {
		if root == nil {
			return -1
		}
		if en := find(root, low, high); en != nil {
			return en.Slot
		}
		return -1
	}
	if got := slotOf(q.Lowest); got != lowest {
		t.Fatalf("lowest is %d, want %d", got, lowest)
	}
	if got := slotOf(q.Highest); got != highest {
		t.Fatalf("highest is %d, want %d", got, highest)
	}
}

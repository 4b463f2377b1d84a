package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
)

// TestPortSet compares the set with a plain count of ports.
func TestPortSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s portSet
		counts := map[int]int{}
		port := rapid.OneOf(
			rapid.SampledFrom([]int{1, 80, 8080, 29999, 32768, 65535, cluster.FirstAutoPort, cluster.LastAutoPort}),
			rapid.IntRange(cluster.FirstAutoPort, cluster.FirstAutoPort+130),
		)
		if rapid.Bool().Draw(t, "nearly full") {
			for p := cluster.FirstAutoPort + 3; p <= cluster.LastAutoPort; p++ {
				s.add(p)
				counts[p]++
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			p := port.Draw(t, "port")
			if rapid.Bool().Draw(t, "add") {
				s.add(p)
				counts[p]++
			} else {
				s.remove(p)
				counts[p] = max(counts[p]-1, 0)
			}
			if got := s.has(p); got != (counts[p] > 0) {
				t.Fatalf("has(%d) = %v, it was taken %d times", p, got, counts[p])
			}
			from := rapid.IntRange(cluster.FirstAutoPort, cluster.LastAutoPort).Draw(t, "from")
			if got, want := s.next(from), nextFree(counts, from); got != want {
				t.Fatalf("next(%d) = %d, want %d", from, got, want)
			}
		}
		used := 0
		for p, n := range counts {
			if n > 0 && p >= cluster.FirstAutoPort && p <= cluster.LastAutoPort {
				used++
			}
		}
		if s.autoUsed != used {
			t.Fatalf("autoUsed is %d, want %d", s.autoUsed, used)
		}
	})
}

// nextFree tries one port after the other.
func nextFree(counts map[int]int, from int) int {
	for i := range autoPorts {
		p := cluster.FirstAutoPort + (from-cluster.FirstAutoPort+i)%autoPorts
		if counts[p] == 0 {
			return p
		}
	}
	return 0
}

// TestFirstPortScatters checks that the tasks of a service, and the attempts of a task, start their search all over the
// range.
func TestFirstPortScatters(t *testing.T) {
	const tries = 1000
	starts := func(of func(i int) int) int {
		seen := map[int]bool{}
		for i := range tries {
			p := of(i)
			if p < cluster.FirstAutoPort || p > cluster.LastAutoPort {
				t.Fatalf("port %d cannot be assigned", p)
			}
			seen[p] = true
		}
		return len(seen)
	}
	// 1,000 draws from 2,768 hit 840 different ones if they are random.
	if n := starts(func(i int) int { return firstPort(cluster.ServiceTask("default", "web", 1, i), 1) }); n < 700 {
		t.Errorf("%d tasks begin at %d places", tries, n)
	}
	if n := starts(func(i int) int { return firstPort("default.web.1.0", i) }); n < 700 {
		t.Errorf("%d attempts begin at %d places", tries, n)
	}
}

// TestRanking compares the ranking with the first minimum of all ranks.
func TestRanking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(0, 70).Draw(t, "nodes")
		draw := func() rank {
			if rapid.IntRange(0, 4).Draw(t, "refused") == 0 {
				return refused()
			}
			return rank{rapid.Uint64Range(0, 2).Draw(t, "tier"), rapid.Uint64Range(0, 2).Draw(t, "fill")}
		}
		nameOrder := make([]uint64, nodes)
		for n, l := range rapid.Permutation(nameOrder).Draw(t, "") {
			nameOrder[n] = l + uint64(n*7%71)
		}
		r := newRanking(nodes, nameOrder)
		for n := range nodes {
			r.ranks[n] = draw()
		}
		r.play()
		for range rapid.IntRange(0, 30).Draw(t, "changes") {
			if nodes > 0 {
				r.set(int32(rapid.IntRange(0, nodes-1).Draw(t, "node")), draw())
			}
			want := int32(-1)
			for n, k := range r.ranks {
				if k != refused() && (want < 0 || k.less(r.ranks[want]) || k == r.ranks[want] &&
					nameOrder[n] < nameOrder[want]) {
					want = int32(n)
				}
			}
			if got := r.best(); got != want {
				t.Fatalf("best is %d, want %d of %v", got, want, r.ranks)
			}
		}
	})
}

func TestShare(t *testing.T) {
	for _, test := range []struct {
		name             string
		amount, capacity int64
		want             uint64
	}{
		{"nothing", 0, 100, 0},
		{"half", 50, 100, 500_000},
		{"a third is cut", 1, 3, 333_333},
		{"all", 100, 100, 1_000_000},
		{"more than all", 550, 100, 5_500_000},
		{"far more than all", 5000, 100, maxParts},
		{"of nothing", 0, 0, 0},
		{"used of nothing", 5, 0, 0},
		{"less than nothing", -5, 100, 0},
		{"largest amounts", maxAmount - 1, maxAmount, 999_999},
		{"of largest amounts all", maxAmount, maxAmount, 1_000_000},
		{"of largest amounts too much", maxAmount, 1, maxParts},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := share(test.amount, test.capacity); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// TestShape checks that capacities are rounded down only slightly.
func TestShape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		have := rapid.Int64Range(0, maxAmount).Draw(t, "capacity")
		got := int64(shapeOf(cluster.Demand{Memory: cluster.Bytes(have)}).Memory)
		if got > have || got < have-have/32 || have < 64 && got != have {
			t.Fatalf("%d is rounded to %d", have, got)
		}
	})
}

// TestTree changes a tree by two owners, and compares each one's tree with a plain list.
func TestTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const slots = 400
		o := names{order: make([]uint64, slots)}
		for i := range o.order {
			o.order[i] = uint64(i * 7919 % slots)
		}
		first := indexEditor{names: &o}
		var root *page
		plain := map[int32]entry{}
		change := func(e indexEditor, root *page, plain map[int32]entry) *page {
			slot := rapid.Int32Range(0, slots-1).Draw(t, "slot")
			if old, found := plain[slot]; found {
				delete(plain, slot)
				return e.remove(root, old.key, slot)
			}
			plain[slot] = entry{
				key: rapid.Uint64Range(0, 9).Draw(t, "key"), slot: slot,
				free: cluster.Demand{
					CPU:    cluster.MilliCPU(rapid.Int64Range(-2, 9).Draw(t, "cpu")),
					Memory: cluster.Bytes(slot % 5),
				},
			}
			return e.insert(root, plain[slot])
		}
		for range rapid.IntRange(0, 600).Draw(t, "changes") {
			root = change(first, root, plain)
		}
		second, other, others := indexEditor{owner: &pageOwner{}, names: &o}, root, maps.Clone(plain)
		for range rapid.IntRange(0, 300).Draw(t, "changes of the second") {
			other = change(second, other, others)
		}
		for range 10 {
			searchTree(t, first, root, plain)
			searchTree(t, second, other, others)
		}
	})
}

func searchTree(t *rapid.T, e indexEditor, root *page, plain map[int32]entry) {
	low := rapid.Uint64Range(0, 10).Draw(t, "low")
	high := rapid.Uint64Range(low, 10).Draw(t, "high")
	q := query{need: cluster.Demand{
		CPU:    cluster.MilliCPU(rapid.Int64Range(-2, 10).Draw(t, "cpu")),
		Memory: cluster.Bytes(rapid.IntRange(0, 5).Draw(t, "memory")),
	}}
	if odd := rapid.Bool().Draw(t, "odd"); odd {
		q.suit = func(slot int32) bool { return slot%2 == 1 }
	}
	lowest, highest := int32(-1), int32(-1)
	for slot, en := range plain {
		if en.key < low || en.key > high || !q.fits(en.free) || q.suit != nil && !q.suit(slot) {
			continue
		}
		if lowest < 0 || e.before(en.key, slot, plain[lowest].key, lowest) {
			lowest = slot
		}
		if highest < 0 || en.key > plain[highest].key || en.key == plain[highest].key &&
			e.names.order[slot] < e.names.order[highest] {
			highest = slot
		}
	}
	slotOf := func(find func(p *page, low, high uint64) *entry) int32 {
		if root == nil {
			return -1
		}
		if en := find(root, low, high); en != nil {
			return en.slot
		}
		return -1
	}
	if got := slotOf(q.lowest); got != lowest {
		t.Fatalf("lowest is %d, want %d", got, lowest)
	}
	if got := slotOf(q.highest); got != highest {
		t.Fatalf("highest is %d, want %d", got, highest)
	}
}

// TestNames adds and removes names, and checks their order and numbers.
func TestNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := make([]string, 1500)
		o := names{of: func(slot int32) string { return texts[slot] }, order: make([]uint64, len(texts))}
		set := map[int32]bool{}
		step := rapid.SampledFrom([]int{1, 7, 1499}).Draw(t, "step")
		for i := range rapid.IntRange(0, 3000).Draw(t, "changes") {
			slot := int32(i * step % len(texts))
			texts[slot] = fmt.Sprintf("n%04d", slot)
			if set[slot] && i%3 > 0 {
				delete(set, slot)
				o.remove(slot)
			} else if !set[slot] {
				set[slot] = true
				o.add(slot)
			}
		}
		var got []int32
		for slot := range o.all {
			if len(got) > 0 && o.order[slot] <= o.order[got[len(got)-1]] {
				t.Fatalf("the number of %s is not above that of %s", texts[slot], texts[got[len(got)-1]])
			}
			got = append(got, slot)
		}
		if want := slices.Sorted(maps.Keys(set)); !slices.Equal(got, want) || o.count != len(want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

package scheduler

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
)

// TestPortSet holds the set against a plain count of who took which port.
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

// TestFirstPortScatters makes sure that the tasks of a service, and the attempts of a task, begin their
// search at places all over the range.
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

// TestRanking holds the ranking against the first lowest of all keys.
func TestRanking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(0, 70).Draw(t, "nodes")
		key := rapid.OneOf(rapid.Uint64Range(0, 5), rapid.Just(uint64(refused)))
		r := newRanking(nodes)
		for n := range nodes {
			r.set(n, key.Draw(t, "key"))
		}
		for range rapid.IntRange(0, 30).Draw(t, "changes") {
			if nodes > 0 {
				r.set(rapid.IntRange(0, nodes-1).Draw(t, "node"), key.Draw(t, "key"))
			}
			want := -1
			for n, k := range r.keys {
				if k != refused && (want < 0 || k < r.keys[want]) {
					want = n
				}
			}
			if got := r.best(); got != want {
				t.Fatalf("best is %d, want %d of %v", got, want, r.keys)
			}
		}
	})
}

func TestShare(t *testing.T) {
	for _, test := range []struct {
		name                 string
		used, more, capacity int64
		want                 uint64
	}{
		{"nothing used", 0, 0, 100, 0},
		{"half", 25, 25, 100, 500_000},
		{"a third is cut", 1, 0, 3, 333_333},
		{"all", 50, 50, 100, 1_000_000},
		{"more than all", 500, 50, 100, 1_000_000},
		{"of nothing", 0, 0, 0, 0},
		{"used of nothing", 5, 0, 0, 0},
		{"largest amounts", mostOfAny - 1, 0, mostOfAny, 999_999},
		{"of largest amounts all", mostOfAny, mostOfAny, mostOfAny, 1_000_000},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := share(test.used, test.more, test.capacity); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

package fleet

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/cluster"
)

// TestPortSet compares the set with a plain count of ports.
func TestPortSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s PortSet
		counts := map[int]int{}
		port := rapid.OneOf(
			rapid.SampledFrom([]int{1, 80, 8080, 29999, 32768, 65535, cluster.FirstAutoPort, cluster.LastAutoPort}),
			rapid.IntRange(cluster.FirstAutoPort, cluster.FirstAutoPort+130),
		)
		if rapid.Bool().Draw(t, "nearly full") {
			for p := cluster.FirstAutoPort + 3; p <= cluster.LastAutoPort; p++ {
				s.Add(p)
				counts[p]++
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			p := port.Draw(t, "port")
			if rapid.Bool().Draw(t, "add") {
				s.Add(p)
				counts[p]++
			} else {
				s.Remove(p)
				counts[p] = max(counts[p]-1, 0)
			}
			if got := s.Has(p); got != (counts[p] > 0) {
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
		if s.AutoUsed != used {
			t.Fatalf("autoUsed is %d, want %d", s.AutoUsed, used)
		}
	})
}

// nextFree tries one port after the other.
func nextFree(counts map[int]int, from int) int {
	for i := range AutoPorts {
		p := cluster.FirstAutoPort + (from-cluster.FirstAutoPort+i)%AutoPorts
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
	if n := starts(func(i int) int { return FirstPort(cluster.ServiceTask("default", "web", 1, i), 1) }); n < 700 {
		t.Errorf("%d tasks begin at %d places", tries, n)
	}
	if n := starts(func(i int) int { return FirstPort("default.web.1.0", i) }); n < 700 {
		t.Errorf("%d attempts begin at %d places", tries, n)
	}
}

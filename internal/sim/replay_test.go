package sim

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestReplay runs stories several times, as BERTH_SIM_REPLAY says ("10 x 1-100"), and shows the first difference
// between unequal histories.
func TestReplay(t *testing.T) {
	times, first, last := 2, uint64(1), uint64(1)
	asked := os.Getenv("BERTH_SIM_REPLAY")
	if asked != "" {
		if _, err := fmt.Sscanf(asked, "%d x %d-%d", &times, &first, &last); err != nil {
			t.Fatalf("%q: want \"<times> x <first>-<last>\": %v", asked, err)
		}
	}
	for seed := first; seed <= last; seed++ {
		want := Run(t, Generate(seed), Options{History: true})
		if want.Digest == "" || len(want.History) == 0 {
			t.Fatalf("seed %d: there is no history", seed)
		}
		for n := range times - 1 {
			got := Run(t, Generate(seed), Options{History: true})
			if (got.Digest == want.Digest) != slices.Equal(got.History, want.History) {
				t.Fatalf("seed %d: the digests do not show whether the histories are equal", seed)
			}
			if asked != "" && got.Digest != want.Digest {
				t.Errorf("seed %d: run %d has another history: %s", seed, n+2,
					firstDifference(want.History, got.History))
				break
			}
		}
	}
}

// TestDigest plays the story of the seed in BERTH_SIM_DIGEST once. scripts/replay compares the digests of several
// processes.
func TestDigest(t *testing.T) {
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("BERTH_SIM_DIGEST"), "1"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	trace := os.Getenv("BERTH_SIM_TRACE") != ""
	r := Run(t, Generate(seed), Options{History: true, Verbose: trace, Logs: trace})
	if r.Digest == "" || len(r.History) == 0 {
		t.Fatalf("seed %d: there is no history", seed)
	}
	if trace {
		t.Log(strings.Join(r.History, "\n"))
	}
	for _, v := range r.Violations {
		t.Errorf("seed %d: %s", seed, v)
	}
	t.Logf("digest: %s", r.Digest)
}

// firstDifference shows the first difference between two histories.
func firstDifference(a, b []string) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	show := func(lines []string) string {
		lines = slices.Clone(lines[min(max(0, i-3), len(lines)):min(i+4, len(lines))])
		for j := range lines {
			lines[j] = lines[j][:min(len(lines[j]), 400)]
		}
		return strings.Join(lines, "\n")
	}
	return fmt.Sprintf("line %d of %d and %d\n--- first\n%s\n--- again\n%s", i, len(a), len(b), show(a), show(b))
}

// TestChanceKnowsNoOrder draws for messages of one moment in two orders: each message is delivered alike in both.
func TestChanceKnowsNoOrder(t *testing.T) {
	messages := []string{"status/n1/a", "status/n2/b", "plan/1", "status/n1/a"}
	draw := func(order []int) map[string][]dice {
		c, out := newRandomness(7), map[string][]dice{}
		for _, i := range order {
			out[messages[i]] = append(out[messages[i]], c.roll("s1>db", messages[i]))
		}
		return out
	}
	one, two := draw([]int{0, 1, 2, 3}), draw([]int{3, 2, 1, 0})
	for m := range one {
		if !slices.Equal(one[m], two[m]) {
			t.Errorf("%s: got %v and in another order %v", m, one[m], two[m])
		}
	}
	if one["status/n1/a"][0] == one["status/n1/a"][1] || one["plan/1"][0] == one["status/n2/b"][0] {
		t.Errorf("got %v, want another number for each message", one)
	}
}

// TestIdentitiesFollowFromTheSeed makes identities in two fleets of a seed, and in one of another.
func TestIdentitiesFollowFromTheSeed(t *testing.T) {
	made := func(seed uint64, life int) []string {
		next := (&host{fleet: &fleet{story: &Story{Seed: seed}}, id: "s1", lives: life}).identities("default")
		return []string{next(), next(), next()}
	}
	if a, b := made(3, 1), made(3, 1); !slices.Equal(a, b) {
		t.Errorf("got %v and %v, want the same", a, b)
	}
	seen := map[string]bool{}
	for _, id := range slices.Concat(made(3, 1), made(3, 2), made(4, 1)) {
		if seen[id] {
			t.Errorf("%s was given twice", id)
		}
		seen[id] = true
	}
}

// TestJitterFollowsFromTime draws the jitter of a node twice at the same time, and later.
func TestJitterFollowsFromTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, began := newRandomness(5), time.Now()
		first, again := c.at("n1", time.Since(began)), c.at("n1", time.Since(began))
		time.Sleep(time.Nanosecond) // in-bubble
		if later := c.at("n1", time.Since(began)); first != again || first == later {
			t.Errorf("got %v and %v in one moment and %v in the next", first, again, later)
		}
	})
}

package sim

import (
	"slices"
	"testing"
	"time"
)

// tries is how often a story is told before it counts as one that does not show a breach: the order of goroutines is
// not the story's.
const tries = 3

// most bounds how many stories a shrinking tells, and spare is when it gives up before the test's time is over, so that
// what it found is printed.
const (
	most  = 300
	spare = time.Minute
)

// Shrink returns a shorter story that ends with the same breach (see Violation.same), by leaving out events: halves
// first, then quarters, down to single ones (Zeller's delta debugging). It returns the story itself where it is not
// broken again.
func Shrink(t *testing.T, story *Story, breach Violation, options Options) *Story {
	t.Helper()
	left := most
	deadline, limited := t.Deadline()
	breaks := func(s *Story) bool {
		for range tries {
			if left--; left < 0 || limited && time.Until(deadline) < spare {
				return false
			}
			r := Run(t, s, options)
			if slices.ContainsFunc(r.Violations, breach.same) {
				return true
			}
		}
		return false
	}
	return shrink(story, breaks)
}

// shrink leaves out as many events as it can while the story breaks.
func shrink(story *Story, breaks func(*Story) bool) *Story {
	best := *story
	parts := 2
	for len(best.Events) > 0 {
		size := max(1, (len(best.Events)+parts-1)/parts)
		shorter := false
		for from := 0; from < len(best.Events); from += size {
			next := best
			next.Events = slices.Delete(slices.Clone(best.Events), from, min(from+size, len(best.Events)))
			if breaks(&next) {
				best, shorter = next, true
				parts = max(2, parts-1)
				break
			}
		}
		if shorter {
			continue
		}
		if size == 1 {
			break
		}
		parts = min(2*parts, len(best.Events))
	}
	for _, smaller := range []func(*Story){
		func(s *Story) { s.Servers = 1 },
		func(s *Story) { s.Servers = 3 },
		func(s *Story) { s.Consul = false },
		func(s *Story) { s.Nodes = 3 },
	} {
		next := best
		smaller(&next)
		if next.Servers <= best.Servers && next.Nodes <= best.Nodes && breaks(&next) {
			best = next
		}
	}
	return &best
}

package sim

import (
	"slices"
	"testing"
	"time"
)

// runsPerStory is the number of runs after which a story counts as one without the breach: the order of goroutines is
// not determined by the story.
const runsPerStory = 3

// maxRuns limits the runs of one shrinking. reservedTime is the rest of the test's time at which it stops, so that the
// result is printed.
const (
	maxRuns      = 300
	reservedTime = time.Minute
)

// Shrink returns a shorter story that ends with the same breach (see Violation.same). It removes halves of the events
// first, then quarters, down to single ones (Zeller's delta debugging). It returns the story unchanged if the breach
// does not recur.
func Shrink(t *testing.T, story *Story, breach Violation, options Options) *Story {
	t.Helper()
	left := maxRuns
	deadline, limited := t.Deadline()
	breaks := func(s *Story) bool {
		for range runsPerStory {
			if left--; left < 0 || limited && time.Until(deadline) < reservedTime {
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

// shrink leaves out as many events as it can while the story still breaks.
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

package sim

import (
	"fmt"
	"strings"
	"testing"
)

// TestKilledAtEachStep kills the leader at each step of a placement (P3). The steps are the write of the plan record,
// its appearance in the server's tables and the message to the agent. The records, states and outcomes of its tasks
// follow, then the deletion of the plan record. No write is lost or doubled, and no program begins twice. One server
// restarts, or another server takes over.
func TestKilledAtEachStep(t *testing.T) {
	steps := []string{
		"plan before", "plan after", "plan seen", "plan told",
		"state before", "state after", "state seen",
		"status before", "status after",
		"attempt before", "attempt after", "attempt seen",
		"trim before", "trim after", "trim seen",
	}
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			struck := 0
			for _, world := range []string{
				"servers 1 nodes 4 consul false", "servers 3 nodes 4 consul false",
				"servers 3 nodes 4 consul true",
			} {
				for n := 1; n <= 3; n++ {
					seed := n // the seed also determines the delay of the projection
					if strings.HasPrefix(step, "trim ") {
						seed = 3*n - 2
					}
					text := fmt.Sprintf("berth-sim-story-1 seed %d %s\n", seed, world) + first(world) +
						fmt.Sprintf("4s crash-at s1 for 2s : %s %d\n", step, n) +
						"5s user web : scale 3\n5.5s user batch : submit 24\n12s user web : roll 3\n13s " +
						"user nightly : submit2 9\n40s user web : scale 1\n"
					r := Run(t, parse(t, text), Options{})
					struck += r.Crashes
					for _, v := range r.Violations {
						t.Errorf("%s\n%s", v, text)
					}
					// Consul's watch does not report deletions
					unseen := step == "trim seen" && strings.HasSuffix(world, "consul true")
					if n == 1 && r.Crashes != 1 && !unseen {
						t.Errorf("the server was killed %d times, want once:\n%s", r.Crashes, text)
					}
				}
			}
			if struck < 6 {
				t.Errorf("in 9 stories the server was killed %d times, want 6 at least", struck)
			}
		})
	}
}

// first keeps s1 the first to lead.
func first(world string) string {
	if strings.HasPrefix(world, "servers 1 ") {
		return ""
	}
	return only
}

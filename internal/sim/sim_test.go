package sim

import (
	"strings"
	"testing"
)

func parse(t *testing.T, text string) *Story {
	t.Helper()
	s, err := ParseStory(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const quietStory = `berth-sim-story-1 seed 1 servers 1 nodes 3 consul false
1s user web : scale 3
2s user batch : submit 4
20s user web : roll 2
`

// TestStoryWithoutFaults expects that a service and a job start, and that a rollout ends.
func TestStoryWithoutFaults(t *testing.T) {
	for _, servers := range []string{"servers 1", "servers 3"} {
		r := Run(t, parse(t, strings.Replace(quietStory, "servers 1", servers, 1)), Options{})
		for _, v := range r.Violations {
			t.Error(v)
		}
		if r.Starts != 3+4+3 {
			t.Errorf("%d programs were started, want 10", r.Starts)
		}
		t.Logf("%+v", r)
	}
}

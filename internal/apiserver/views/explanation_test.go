package views

import "testing"

// TestSummaries checks that a summary reads as a sentence in every state.
func TestSummaries(t *testing.T) {
	canaries := "generation 2 with web@2: 1 canary is healthy and waits to be promoted"
	for state, test := range map[string]struct{ message, want string }{
		"canary":         {canaries, "service web: " + canaries},
		"paused":         {"generation 2 with web@2 is paused", "service web: generation 2 with web@2 is paused"},
		"rollout-failed": {"", "service web: its rollout goes no further by itself"},
		"crash-looping":  {"m", "service web is crash looping: m"},
		"healthy":        {"", "service web is healthy"},
	} {
		if got := summary("service web", state, test.message, nil); got != test.want {
			t.Errorf("%s: got %q, want %q", state, got, test.want)
		}
	}
}

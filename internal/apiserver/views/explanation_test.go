package views

import "testing"

// TestSummaries checks that a summary reads as a sentence in every state.
func TestSummaries(t *testing.T) {
	canaries := "rolling out web@2: 1 canary healthy, waiting for promotion"
	for state, test := range map[string]struct{ message, want string }{
		"canary":         {canaries, "service web: " + canaries},
		"paused":         {"rollout of web@2 is paused", "service web: rollout of web@2 is paused"},
		"rollout-failed": {"", "service web: rollout-failed"},
		"crash-looping":  {"m", "service web is crash-looping: m"},
		"healthy":        {"", "service web is healthy"},
	} {
		if got := summary("service web", state, test.message, nil); got != test.want {
			t.Errorf("%s: got %q, want %q", state, got, test.want)
		}
	}
}

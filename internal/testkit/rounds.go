package testkit

import (
	"testing"

	"pgregory.net/rapid"
)

// CheckRounds checks a property in up to rounds rounds, each with other cases, even if all are drawn from one seed
// (RAPID_SEED). It ends early if the property fails, or if enough, which may be nil, returns true after a round.
func CheckRounds(t *testing.T, rounds int, property func(*rapid.T), enough func() bool) {
	t.Helper()
	for round := range rounds {
		rapid.Check(t, func(t *rapid.T) {
			for range round {
				rapid.Uint64().Draw(t, "this shifts what is drawn")
			}
			property(t)
		})
		if t.Failed() || enough != nil && enough() {
			return
		}
	}
}

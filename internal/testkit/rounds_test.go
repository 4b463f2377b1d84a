package testkit_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/testkit"
)

// Rounds with one seed draw different cases, and end once enough was seen.
func TestCheckRounds(t *testing.T) {
	seen, rounds := map[uint64]bool{}, 0
	testkit.CheckRounds(t, 4, func(t *rapid.T) { seen[rapid.Uint64().Draw(t, "case")] = true }, func() bool {
		rounds++
		return rounds == 3
	})
	cases := len(seen)
	if rounds != 3 || cases < 150 {
		t.Errorf("%d different cases in %d rounds of 100, want 3 rounds and 150 cases or more", cases, rounds)
	}
}

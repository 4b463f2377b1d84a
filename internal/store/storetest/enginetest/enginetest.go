// Package enginetest has the tests of an engine: the cases of storetest as subtests, and what draws random cases.
//
// A Trial records the calls and answers of clients while an engine is killed under them. Linearizable searches an order
// of all calls that explains the answers. The tests of this package run both on engines with planted bugs, which they
// must catch.
package enginetest

import (
	"slices"
	"testing"

	"github.com/berthd/berth/internal/store/storetest"
	"github.com/berthd/berth/internal/suite"
	"github.com/berthd/berth/internal/suite/suitetest"
)

// Suite describes the engine under test.
type Suite struct {
	// Open returns a new subject, which is cleaned up when t ends.
	Open func(t *testing.T) storetest.Subject
	// Bubble runs each test inside a testing/synctest bubble.
	Bubble bool
	// Without names the tests that do not apply to the engine, such as "commit/space" where another process has the
	// disk. Each needs another proof.
	Without []string
}

// Test runs the cases of storetest, and "commit/model".
func Test(t *testing.T, s Suite) {
	model := suite.Case[storetest.Subject]{Name: "commit/model", Run: compareWithModel}
	cases := append([]suite.Case[storetest.Subject]{model}, storetest.Cases()...)
	cases = slices.DeleteFunc(cases, func(c suite.Case[storetest.Subject]) bool {
		return slices.Contains(s.Without, c.Name)
	})
	if s.Bubble {
		suitetest.RunInBubbles(t, cases, s.Open)
	} else {
		suitetest.Run(t, cases, s.Open)
	}
}

// Package suitetest runs the cases of package suite as subtests.
package suitetest

import (
	"testing"
	"testing/synctest"

	"github.com/berthd/berth/internal/suite"
)

// Run runs each case as a subtest with its name. Open makes the subject of each, which it cleans up when its test ends.
func Run[S any](t *testing.T, cases []suite.Case[S], open func(*testing.T) S) {
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, open(t)) })
	}
}

// RunInBubbles is Run, with each subtest inside a synctest bubble of its own.
func RunInBubbles[S any](t *testing.T, cases []suite.Case[S], open func(*testing.T) S) {
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Run(t, open(t)) })
		})
	}
}

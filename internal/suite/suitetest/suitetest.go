// Package suitetest runs the cases of package suite as subtests.
package suitetest

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/berthd/berth/internal/suite"
	"github.com/berthd/berth/internal/testkit"
)

// reporter is a test as a suite.T, without cases that are left out where testkit permits none.
type reporter struct{ *testing.T }

// Skipf leaves the case out with a reason, as testkit.Skip does.
func (r reporter) Skipf(format string, args ...any) {
	r.Helper()
	testkit.Skip(r.T, fmt.Sprintf(format, args...))
}

// Run runs each case as a subtest with its name. Open makes the subject of each, which it cleans up when its test ends.
func Run[S any](t *testing.T, cases []suite.Case[S], open func(*testing.T) S) {
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) { c.Run(reporter{t}, open(t)) })
	}
}

// RunInBubbles is Run, with each subtest inside a synctest bubble of its own.
func RunInBubbles[S any](t *testing.T, cases []suite.Case[S], open func(*testing.T) S) {
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Run(reporter{t}, open(t)) })
		})
	}
}

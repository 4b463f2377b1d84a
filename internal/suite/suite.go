// Package suite runs conformance suites both as tests and as programs.
//
// A suite is a list of named cases over a small interface, T. Every test is a T; package suitetest runs each case as a
// subtest. Run runs the cases without package testing, for commands with which operators check their own drivers.
package suite

import (
	"context"
	"time"

	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/yardstick"
)

// T reports the faults of one case, and owns what the case makes. Each *testing.T is a T. The methods mean what those
// of testing.T mean: Fatalf and Skipf end the goroutine of the case, and only it may call them. All others are safe for
// concurrent use.
type T interface {
	// Helper marks the calling function as one whose callers matter more than its own lines.
	Helper()
	// Context returns a context that ends when the case has ended, before its cleanups run.
	Context() context.Context
	// Cleanup registers a function that runs after the case. The last one registered runs first.
	Cleanup(f func())
	// TempDir returns a new empty directory, which is removed after the case.
	TempDir() string
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Case is one case of a suite over subjects such as engines or machines.
type Case[S any] struct {
	// Name is unique in its suite.
	Name string
	// Run checks one subject, which the case has for itself.
	Run func(t T, subject S)
}

// Eventually calls check until it returns nil, and fails the case with check's last error once the limit has passed.
// The limit stretches on a slow or busy machine: see yardstick.Eventually. Only the goroutine of the case may call it.
func Eventually(t T, limit time.Duration, check func() error) {
	t.Helper()
	if err := yardstick.Eventually(t.Context(), limit, check); err != nil {
		t.Fatalf("%v", err)
	}
}

// Pause waits until d has passed or the case has ended. It is the one sleep of suites, for cases in which the moment
// matters, such as when to kill a process. A case that waits for an event uses Eventually.
func Pause(t T, d time.Duration) {
	_ = pause.For(t.Context(), d)
}

// Context returns a context of the case that ends after a limit, stretched as by Eventually. Its cause says so.
func Context(t T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := yardstick.WithLimit(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

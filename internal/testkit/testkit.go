// Package testkit is what tests of real parts share: one way to wait for the
// world, with a deadline, and one way to say that a machine lacks a part.
//
// A test that waits for a process, a socket or a container polls with Eventually;
// nothing else in a test may sleep on the real clock. A test that needs a part
// asks with NeedRoot or NeedCommand: where the part is missing the test is
// skipped with the reason, or fails if BERTH_TEST_NO_SKIP is set, as CI sets it.
package testkit

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// NoSkip is the environment variable that turns every skip into a failure.
const NoSkip = "BERTH_TEST_NO_SKIP"

// poll is how often Eventually looks.
const poll = 10 * time.Millisecond

// Eventually calls look until it returns nil, and fails the test with look's last
// error once the limit has passed. It must run on the test's own goroutine.
func Eventually(t testing.TB, limit time.Duration, look func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := look()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %v", limit, err)
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("the test ended while waiting: %v", err)
		case <-time.After(poll):
		}
	}
}

// Skip leaves the test out with a reason, or fails it where nothing may be left
// out.
func Skip(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv(NoSkip) != "" {
		t.Fatalf("left out, which %s forbids: %s", NoSkip, reason)
	}
	t.Skip("left out: " + reason)
}

// NeedRoot leaves the test out unless it runs as root.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Skip(t, "needs root")
	}
}

// NeedCommand leaves the test out unless every named command is installed.
func NeedCommand(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			Skip(t, "needs the command "+name)
		}
	}
}

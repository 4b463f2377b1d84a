// Package testkit is what tests of real parts share: one way to wait for the
// world, with a deadline, and one way to say that a machine lacks a part.
//
// A test that waits for a process, a socket or a container polls with Eventually, or
// with Poll where it has to go on after the limit; nothing else in a test may sleep on
// the real clock, but for the tests that do something at a random moment, which Pause
// until then. A test that needs a part
// asks with NeedRoot or NeedCommand: where the part is missing the test is
// skipped with the reason, or fails if BERTH_TEST_NO_SKIP is set, as CI sets it.
package testkit

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// NoSkip is the environment variable that turns every skip into a failure.
const NoSkip = "BERTH_TEST_NO_SKIP"

// Machine is the environment variable that tells machines with different parts apart.
const Machine = "BERTH_TEST_MACHINE"

// poll is how often Eventually looks.
const poll = 10 * time.Millisecond

// Eventually calls look until it returns nil, and fails the test with look's last
// error once the limit has passed. It must run on the test's own goroutine.
func Eventually(t testing.TB, limit time.Duration, look func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	err := Poll(ctx, look)
	switch {
	case err == nil:
	case t.Context().Err() != nil:
		t.Fatalf("the test ended while waiting: %v", err)
	default:
		t.Fatalf("after %v: %v", limit, err)
	}
}

// Poll calls look until it returns nil or ctx has ended, and returns its last error. It
// looks once at least. It is for what must not end the test: cleaning up, above all.
func Poll(ctx context.Context, look func() error) error {
	for {
		err := look()
		if err == nil || ctx.Err() != nil {
			return err
		}
		Pause(ctx, poll)
	}
}

// Pause waits until d has passed or ctx has ended. It is the one sleep of tests, for those
// whose matter is the moment: when to kill a process, or how fast to send. Whoever waits
// for something to happen uses Eventually.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Setting returns a whole number from the environment, by which a test can be made to try more often, or as it did once
// before; the fallback where the variable is not set.
func Setting(t testing.TB, name string, fallback int64) int64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
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

// onMachine makes what a test found out hold only for machines with the same parts: go test takes the result that it remembers for a test only
// where the variables are the same that the test read.
func onMachine() { _ = os.Getenv(Machine) }

// NeedRoot leaves the test out unless it runs as root.
func NeedRoot(t testing.TB) {
	t.Helper()
	onMachine()
	if os.Geteuid() != 0 {
		Skip(t, "needs root")
	}
}

// NeedCommand leaves the test out unless every named command is installed.
func NeedCommand(t testing.TB, names ...string) {
	t.Helper()
	onMachine()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			Skip(t, "needs the command "+name)
		}
	}
}

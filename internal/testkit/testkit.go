// Package testkit is what tests of real parts share: one way to wait for the
// world, with a deadline, and one way to say that a machine lacks a part.
//
// A test that waits for a process, a socket or a container polls with Eventually, or with Poll where it has to continue
// after the limit; nothing else in a test may sleep on the real clock, but for the tests that do something at a random
// moment, which Pause until then. No test fails because the machine is slow: limits follow a yardstick (Eventually,
// Context, Scaled, Stopwatch). A test that needs a part asks with NeedRoot or NeedCommand: where the part is missing
// the test is skipped with the reason, or fails if BERTH_TEST_NO_SKIP is set, as CI sets it.
package testkit

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/berthd/berth/internal/pause"
)

// NoSkip is the environment variable that turns every skip into a failure.
const NoSkip = "BERTH_TEST_NO_SKIP"

// Machine is the environment variable that distinguishes machines with different parts.
const Machine = "BERTH_TEST_MACHINE"

const (
	// poll is the pause after the first check of Eventually. Later pauses grow to slowPoll, because frequent checks of
	// slow things only take processor time from what the test waits for.
	poll     = 10 * time.Millisecond
	slowPoll = 200 * time.Millisecond
	// checkShare is the least ratio of a pause to the duration of the check before it, so that repeated commands leave
	// the machine to what the test waits for. It counts up to longestPoll.
	checkShare  = 3
	longestPoll = time.Second
)

// pauseAfter returns the next pause after a pause and a check that took so long.
func pauseAfter(pause, took time.Duration) time.Duration {
	if inBubble() {
		return poll
	}
	return max(min(pause*5/4, slowPoll), min(checkShare*took, longestPoll))
}

// Eventually calls check until it returns nil, and fails the test with check's last error once the limit has passed.
// The limit is that of a quiet machine: it stretches while the machine is slow or busy (see Scaled). It must run on the
// test's own goroutine.
func Eventually(t testing.TB, limit time.Duration, check func() error) {
	t.Helper()
	watch := NewStopwatch()
	for pause := min(poll, limit); ; {
		began := time.Now()
		err := check()
		took := time.Since(began)
		switch {
		case err == nil:
			return
		case t.Context().Err() != nil:
			t.Fatalf("the test ended while waiting: %v", err)
		case watch.over(limit):
			t.Fatalf("after %v, %v on the wall: %v", limit, time.Since(watch.began).Round(time.Millisecond), err)
		}
		Pause(t.Context(), pause)
		pause = pauseAfter(pause, took)
	}
}

// Poll calls check until it returns nil or ctx has ended, and returns its last error. It checks once at least. It is
// for what must not end the test: cleaning up, above all.
func Poll(ctx context.Context, check func() error) error {
	for pause := poll; ; {
		began := time.Now()
		err := check()
		if err == nil || ctx.Err() != nil {
			return err
		}
		took := time.Since(began)
		Pause(ctx, pause)
		pause = pauseAfter(pause, took)
	}
}

// Pause waits until d has passed or ctx has ended. It is the one sleep of tests, for tests in which the moment matters:
// when to kill a process, or how fast to send. A test that waits for an event uses Eventually.
func Pause(ctx context.Context, d time.Duration) {
	_ = pause.For(ctx, d)
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

// Figures is the environment variable that makes tests compare figures with the promised ones, as on a quiet machine.
const Figures = "BERTH_TEST_FIGURES"

// Figure logs a figure, such as a duration or a size, next to the promised maximum. It fails the test only if Figures
// is set: a slow machine is no reason for a test to fail.
func Figure[T cmp.Ordered](t testing.TB, what string, got, most T) {
	t.Helper()
	t.Logf("%s: %v, promised at most %v", what, got, most)
	if os.Getenv(Figures) != "" && got > most {
		t.Errorf("%s is %v, want at most %v", what, got, most)
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

// onMachine limits a cached test result to machines with the same parts: go test reuses a result only if the variables
// that the test read are unchanged.
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

// Package testkit is what tests of real parts share: one way to wait for the
// world, with a deadline, and one way to say that a machine lacks a part.
//
// A test that waits for a process, a socket or a container polls with Eventually, or with Poll where it has to continue
// after the limit; nothing else in a test may sleep on the real clock, but for the tests that do something at a random
// moment, which Pause until then. No test fails because the machine is slow: limits follow internal/yardstick
// (Eventually, Context, Scaled, NewStopwatch). A test that needs a part calls NeedRoot or NeedCommand: where the part
// is missing the test is skipped with the reason, or fails if BERTH_TEST_NO_SKIP is set, as CI sets it.
package testkit

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/internal/freeport"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/suite"
	"github.com/berthd/berth/internal/yardstick"
)

// NoSkip is the environment variable that turns every skip into a failure.
const NoSkip = "BERTH_TEST_NO_SKIP"

// Machine is the environment variable that distinguishes machines with different parts.
const Machine = "BERTH_TEST_MACHINE"

// Eventually calls check until it returns nil, and fails the test with check's last error once the limit has passed.
// The limit is that of a quiet machine: see yardstick.Eventually. It must run on the test's own goroutine.
func Eventually(t testing.TB, limit time.Duration, check func() error) {
	t.Helper()
	suite.Eventually(t, limit, check)
}

// Context returns a context of the test that ends after a limit, stretched as by Eventually. Its cause says so.
func Context(t testing.TB, limit time.Duration) context.Context {
	t.Helper()
	return suite.Context(t, limit)
}

// WithLimit is yardstick.WithLimit. It is for what outlives a test's own context.
func WithLimit(parent context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return yardstick.WithLimit(parent, limit)
}

// Poll is yardstick.Poll. It is for what must not end the test: cleaning up, above all.
func Poll(ctx context.Context, check func() error) error { return yardstick.Poll(ctx, check) }

// Scaled is yardstick.Scaled, for limits that a test writes into a manifest or a configuration.
func Scaled(limit time.Duration) time.Duration { return yardstick.Scaled(limit) }

// NewStopwatch is yardstick.NewStopwatch, for tests that compare a duration with an upper limit.
func NewStopwatch() *yardstick.Stopwatch { return yardstick.NewStopwatch() }

// Pause waits until d has passed or ctx has ended. It is the one sleep of tests, for tests in which the moment matters:
// when to kill a process, or how fast to send. A test that waits for an event uses Eventually.
func Pause(ctx context.Context, d time.Duration) {
	_ = pause.For(ctx, d)
}

// FreeAddress returns a loopback address on which nothing listens: see freeport.Address.
func FreeAddress(t testing.TB) string {
	t.Helper()
	address, err := freeport.Address(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return address
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

// python is the path of the interpreter that the command python3 starts.
var python = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	return strings.TrimSpace(string(out)), err
})

// NeedPython returns the path of the interpreter of Python, and leaves the test out without one. Where python3 is a
// script that chooses among installed versions, each start of the script costs a second of CPU that the interpreter
// does not need.
func NeedPython(t testing.TB) (program string) {
	t.Helper()
	NeedCommand(t, "python3")
	path, err := python()
	if err != nil {
		t.Fatalf("ask python3 for its path: %v", err)
	}
	return path
}

// NeedServer returns the program of a server that scripts/install-servers builds, such as "consul". The environment
// variable BERTH_TEST_<NAME>, such as BERTH_TEST_CONSUL, names another one. Of several the newest is used. Without a
// program the test is left out.
func NeedServer(t testing.TB, name string) (program string) {
	t.Helper()
	if path := os.Getenv("BERTH_TEST_" + strings.ToUpper(name)); path != "" {
		return path
	}
	var newest time.Time
	if cache, err := os.UserCacheDir(); err == nil {
		found, _ := filepath.Glob(filepath.Join(cache, "berth", name+"-*", name))
		for _, path := range found {
			if info, err := os.Stat(path); err == nil && info.ModTime().After(newest) {
				program, newest = path, info.ModTime()
			}
		}
	}
	if program != "" {
		return program
	}
	Skip(t, "there is no "+name+": scripts/install-servers builds one")
	return ""
}

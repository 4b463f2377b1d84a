// Package harness runs the real berth binary for tests.
//
// A Site is one data directory with its processes: `berth dev`, `berth standalone`, or `berth server` and `berth
// agent`. A test may kill and restart each process. Each site has its own folders, sockets, ports and home. When the
// test ends, the site deletes all services and jobs and ends its processes by their pids. It fails the test if a
// process, a control group or a mount is left on the machine.
//
//	func TestMain(m *testing.M) { harness.Main(m) }
//
//	site := harness.New(t, harness.Process)
//	site.Dev()
//	site.Berth("run", site.Write("web.yaml", manifest)).Want(t, 0)
//
// A Fleet is several servers with one store, and agents that reach them over mutual TLS. Each has a data directory and
// a host of its own: an address of this machine's loopback, or a network namespace.
//
//	fleet := harness.NewFleet(t)
//	hosts := harness.Loopback(4)
//	fleet.Start(hosts[:3]...)
//	fleet.Agent(hosts[3])
//	fleet.Leader().Kill()
package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/berthd/berth/internal/testkit"
)

// Executors that a site can have.
const (
	Process    = "process"
	Containerd = "containerd"
)

// BinaryVariable names a berth binary to test instead of one that is built from this tree.
const BinaryVariable = "BERTH_TEST_BINARY"

// LogVariable is the log level of servers and agents, which a test that fails prints the end of; default warn.
const LogVariable = "BERTH_TEST_LOG"

// Main builds berth, runs the tests of a package and removes the binary. It does not return. Packages
// that use a Site call it from TestMain.
func Main(m *testing.M) {
	code, err := withBinary(m.Run)
	removePrograms()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func withBinary(run func() int) (int, error) {
	if os.Getenv(BinaryVariable) != "" {
		return run(), nil
	}
	dir, err := os.MkdirTemp("", "berth-binary-")
	if err != nil {
		return 0, fmt.Errorf("build berth: %w", err)
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "berth")
	// the go command ends the tests that take too long
	cmd := exec.Command("scripts/build", binary)
	if cmd.Dir, err = Root(); err != nil {
		return 0, err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build berth: %w\n%s", err, out)
	}
	if err := os.Setenv(BinaryVariable, binary); err != nil {
		return 0, fmt.Errorf("build berth: %w", err)
	}
	return run(), nil
}

// Binary returns the path of the berth that is tested.
func Binary() string { return os.Getenv(BinaryVariable) }

// Root returns the folder of the module's go.mod.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("no go.mod above %s", dir)
		}
		dir = up
	}
}

// ExecutorsVariable makes Either run a test with all executors if it is "all".
const ExecutorsVariable = "BERTH_TEST_EXECUTORS"

// Either is Each for a test whose subject does not depend on the executor: the suite of the executors shows that they
// do the same. It runs the test with one executor, and with all of them under `make prove PROVE=e2e`.
func Either(t *testing.T, executor string, run func(t *testing.T, executor string)) {
	if os.Getenv(ExecutorsVariable) == "all" {
		Each(t, run)
		return
	}
	t.Run(executor, func(t *testing.T) {
		t.Parallel()
		Need(t, executor)
		run(t, executor)
	})
}

// Each runs a test as a parallel subtest for each executor, and skips executors that the machine cannot run.
func Each(t *testing.T, run func(t *testing.T, executor string)) {
	for _, executor := range []string{Process, Containerd} {
		t.Run(executor, func(t *testing.T) {
			t.Parallel()
			Need(t, executor)
			run(t, executor)
		})
	}
}

// Need leaves the test out where the machine lacks what an executor needs.
func Need(t testing.TB, executor string) {
	t.Helper()
	if executor == Containerd {
		testkit.NeedRoot(t)
		testkit.NeedCommand(t, "containerd", "runc")
	}
}

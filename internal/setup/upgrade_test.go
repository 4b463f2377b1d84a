package setup

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const (
	oldVersion = "0123456789abcdef"
	testLimit  = time.Minute
)

// newUpgradeMachine returns a machine with systemd whose agent runs an old binary, and the version of this program.
func newUpgradeMachine(t *testing.T) (m *testMachine, version string) {
	t.Helper()
	m = newTestMachine(t)
	m.write(unitFile, "", 0o644)
	m.write(binaryAt(oldVersion).place(), "old", 0o755)
	if err := m.link(binaryAt(oldVersion).place()); err != nil {
		t.Fatal(err)
	}
	m.startsAgent()
	own, err := ownBinary()
	if err != nil {
		t.Fatal(err)
	}
	return m, own.sum[:shortSum]
}

// startsAgent makes a process of the installed binary.
func (m *testMachine) startsAgent() {
	m.t.Helper()
	exe := m.path("/proc/100/exe")
	if err := os.MkdirAll(filepath.Dir(exe), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Remove(exe); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.t.Fatal(err)
	}
	if err := os.Symlink(binaryAt(m.installedSum()).place(), exe); err != nil {
		m.t.Fatal(err)
	}
}

// runs returns the version that the agent runs.
func (m *testMachine) runs() string {
	m.t.Helper()
	exe, err := os.Readlink(m.path("/proc/100/exe"))
	if err != nil {
		m.t.Fatal(err)
	}
	return filepath.Base(filepath.Dir(exe))
}

func (m *testMachine) upgrades() *Upgrades { return NewUpgrades(m.Machine) }

func (m *testMachine) upgrade() (steps []Step, err error) {
	err = m.upgrades().Begin(m.t.Context(), testLimit, func(s Step) { steps = append(steps, s) })
	return steps, err
}

// wantVersion checks what is installed and what the agent runs, and whether an upgrade waits for its confirmation.
func (m *testMachine) wantVersion(version string, waits bool) {
	m.t.Helper()
	if installed, runs := m.installedSum(), m.runs(); installed != version || runs != version {
		m.t.Errorf("got %s installed and %s in the agent, want %s", installed, runs, version)
	}
	if got := m.upgrades().isWaiting(); got != waits {
		m.t.Errorf("an upgrade waits: got %v, want %v", got, waits)
	}
	if got := m.has(watchUnitFile); got != waits {
		m.t.Errorf("an upgrade is watched over a boot: got %v, want %v", got, waits)
	}
}

func (m *testMachine) restarts() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Count(strings.Join(m.commands, "\n"), "systemctl restart -- "+unitName)
}

// TestUpgrade replaces the agent and confirms it. A second upgrade changes nothing. Old binaries are deleted, except
// the one before.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	m, version := newUpgradeMachine(t)
	for i, name := range []string{"a", "b", "c"} {
		m.write(VersionsDir+"/"+name+"/berth", "", 0o755)
		at := time.Now().Add(time.Duration(i-10) * time.Hour)
		if err := os.Chtimes(m.path(VersionsDir+"/"+name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	steps, err := m.upgrade()
	if err != nil || len(steps) != 2 || !steps[1].ReplacesAgent() || steps[1].Is != "sha256 "+oldVersion {
		t.Fatalf("got %+v, %v", steps, err)
	}
	m.wantVersion(version, true)
	for range 2 {
		if err := m.upgrades().Confirm(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.wantVersion(version, false)
	}
	for name, want := range map[string]bool{"a": false, "b": true, "c": true, oldVersion: true, version: true} {
		if got := m.has(VersionsDir + "/" + name); got != want {
			t.Errorf("version %s is there: got %v, want %v", name, got, want)
		}
	}
	if steps, err := m.upgrade(); err != nil || len(steps) != 0 || m.restarts() != 1 {
		t.Errorf("the second upgrade did %+v, %v, with %d restarts", steps, err, m.restarts())
	}
	if err := m.upgrades().Revert(t.Context()); !errors.Is(err, ErrNoUpgrade) {
		t.Errorf("a confirmed upgrade went back: %v", err)
	}
}

// TestUpgradeGoesBack leaves an upgrade without a confirmation. The watch goes back at the end of the time, and no
// earlier. A confirmation after that is refused.
func TestUpgradeGoesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, version := newUpgradeMachine(t)
		if _, err := m.upgrade(); err != nil {
			t.Fatal(err)
		}
		ended := m.watch(t)
		time.Sleep(testLimit - time.Second) // in-bubble: the time before the end
		synctest.Wait()
		m.wantVersion(version, true)
		m.fail("restart -- "+unitName, 0)
		time.Sleep(3 * watchPeriod) // in-bubble: the end, when systemd fails
		m.fail("", 0)
		time.Sleep(2 * revertPause) // in-bubble: the watch tries again
		synctest.Wait()
		m.wantVersion(oldVersion, false)
		if err := <-ended; err != nil {
			t.Errorf("the watch ended with %v", err)
		}
		err := m.upgrades().Confirm(t.Context())
		if err == nil || !strings.Contains(err.Error(), "went back to "+oldVersion) {
			t.Errorf("a confirmation that is late ended with %v", err)
		}
	})
}

// watch runs the watch of the machine. The channel gets its end.
func (m *testMachine) watch(t *testing.T) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- m.upgrades().Watch(t.Context(), slog.New(slog.DiscardHandler)) }()
	return ended
}

// TestUpgradeGoesOn repeats an upgrade that was interrupted. The agent is not replaced again, the time begins anew,
// and the machine still goes back to the first binary.
func TestUpgradeGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, version := newUpgradeMachine(t)
		if _, err := m.upgrade(); err != nil {
			t.Fatal(err)
		}
		first, second := m.watch(t), m.watch(t)
		time.Sleep(testLimit - 2*time.Second) // in-bubble: almost the whole time
		if steps, err := m.upgrade(); err != nil || len(steps) != 0 || m.restarts() != 1 {
			t.Errorf("got %+v, %v, with %d restarts", steps, err, m.restarts())
		}
		time.Sleep(testLimit / 2) // in-bubble: longer than the first time
		synctest.Wait()
		m.wantVersion(version, true)
		if err := m.upgrades().Revert(t.Context()); err != nil {
			t.Error(err)
		}
		m.wantVersion(oldVersion, false)
		if err := errors.Join(<-first, <-second); err != nil {
			t.Errorf("the watches ended with %v", err)
		}
	})
}

// TestUpgradeFailsHalfway makes each command of systemd fail. The agent before runs, and nothing waits.
func TestUpgradeFailsHalfway(t *testing.T) {
	t.Parallel()
	for _, fails := range []string{"daemon-reload", "enable", "restart -- " + watchUnitName, "restart -- " + unitName} {
		t.Run(fails, func(t *testing.T) {
			t.Parallel()
			m, _ := newUpgradeMachine(t)
			m.fail(fails, 1)
			if _, err := m.upgrade(); err == nil || !strings.Contains(err.Error(), "no space left") {
				t.Errorf("got %v", err)
			}
			m.wantVersion(oldVersion, false)
		})
	}
}

// TestUpgradeAfterACrash stops an upgrade after each of its writes, as a crash does. The watch goes back.
func TestUpgradeAfterACrash(t *testing.T) {
	t.Parallel()
	for _, linked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m, version := newUpgradeMachine(t)
			u := upgrade{From: oldVersion, To: version, Until: time.Now().Add(testLimit), Limit: testLimit}
			if err := m.upgrades().write(&u); err != nil {
				t.Fatal(err)
			}
			if linked {
				if err := m.link(binaryAt(version).place()); err != nil {
					t.Fatal(err)
				}
			}
			ended := m.watch(t)
			time.Sleep(testLimit + 2*watchPeriod) // in-bubble: the time of the upgrade
			synctest.Wait()
			m.wantVersion(oldVersion, false)
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestUpgradeNeedsASetup refuses a machine whose agent was installed another way.
func TestUpgradeNeedsASetup(t *testing.T) {
	t.Parallel()
	m := newTestMachine(t)
	if _, err := m.upgrade(); err == nil || !strings.Contains(err.Error(), "did not set up the agent") {
		t.Errorf("got %v", err)
	}
}

// systemctl changes the process of the agent as systemd does.
func (m *testMachine) systemctl(arguments []string) string {
	switch {
	case arguments[0] == "show":
		return "MainPID=100\nUnitFileState=enabled\nActiveState=active\n"
	case arguments[0] == "restart" && arguments[len(arguments)-1] == unitName:
		m.startsAgent()
	}
	return ""
}

package setup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

// testMachine is a machine in a folder. Its programs are functions that change the files.
type testMachine struct {
	*Machine
	t *testing.T

	mu       sync.Mutex // of the fields below: a watch runs commands, too
	commands []string
	fails    string // a word of the commands that fail
	failures int    // the number of them; 0 for all
}

func newTestMachine(t *testing.T) *testMachine {
	t.Helper()
	m := &testMachine{Machine: &Machine{Root: t.TempDir()}, t: t}
	m.Machine.Run = m.run
	for name, content := range map[string]string{
		"/etc/os-release":             "ID=debian\n",
		"/etc/passwd":                 "root:x:0:0:root:/root:/bin/sh\n",
		"/etc/group":                  "root:x:0:\nadm:x:4:root\n",
		"/proc/sys/net/core/a":        "1\n",
		"/proc/sys/net/ipv4/ports":    "32768\t60999\n",
		"/sys/module/overlay/initok":  "",
		"/run/systemd/system/ignored": "",
	} {
		m.write(name, content, 0o644)
	}
	for _, program := range []string{"dpkg-query", "apt-get", "useradd", "systemctl"} {
		m.write("/usr/bin/"+program, "", 0o755)
	}
	return m
}

func (m *testMachine) write(name, content string, mode os.FileMode) {
	m.t.Helper()
	path := m.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		m.t.Fatal(err)
	}
}

func (m *testMachine) append(name, line string) {
	m.t.Helper()
	b, err := os.ReadFile(m.path(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.t.Fatal(err)
	}
	m.write(name, string(b)+line+"\n", 0o644)
}

// fail makes a number of commands with a word fail; 0 for all.
func (m *testMachine) fail(word string, count int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fails, m.failures = word, count
}

// notes remembers a command and reports whether it fails.
func (m *testMachine) notes(line string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.commands = append(m.commands, line)
	if m.fails == "" || !strings.Contains(line, m.fails) {
		return false
	}
	if m.failures--; m.failures == 0 {
		m.fails = ""
	}
	return true
}

// run is Machine.Run.
func (m *testMachine) run(_ context.Context, name string, arguments ...string) (string, error) {
	line := strings.Join(append([]string{name}, arguments...), " ")
	if m.notes(line) {
		return "", errors.New("no space left")
	}
	last := arguments[len(arguments)-1]
	names := arguments[slices.Index(arguments, "--")+1:]
	switch name {
	case "systemctl":
		if !m.has(unitFile) {
			break
		}
		return m.systemctl(arguments), nil
	case "dpkg-query":
		b, err := os.ReadFile(m.path("/installed"))
		if err != nil {
			return "", nil //nolint:nilerr // nothing is installed
		}
		return string(b), nil
	case "apt-get":
		if arguments[0] == "install" {
			for _, p := range names {
				m.append("/installed", p+" installed")
			}
		}
	case "modprobe":
		m.write("/sys/module/"+strings.ReplaceAll(last, "-", "_")+"/initok", "", 0o644)
		m.write("/proc/sys/net/bridge/calls", "0\n", 0o644)
	case "groupadd":
		m.append("/etc/group", last+":x:900:")
	case "useradd":
		m.append("/etc/passwd", last+":x:0:0::/srv/app:"+noLogin) // files of root can be made without root
		group := arguments[slices.Index(arguments, "--groups")+1]
		b, err := os.ReadFile(m.path("/etc/group"))
		if err != nil {
			return "", err
		}
		m.write("/etc/group", strings.Replace(string(b), group+":x:900:", group+":x:900:"+last, 1), 0o644)
	}
	return "", nil
}

func testProfile() *cluster.Profile {
	return &cluster.Profile{
		Name: "worker", Version: 1,
		Packages: map[string][]string{"debian": {"runc", "containerd"}, "alpine": {"other"}},
		Modules:  []string{"overlay", "br-netfilter"},
		Sysctls:  map[string]string{"net.core.a": "2", "net.ipv4.ports": "32768 60999"},
		Users:    []cluster.ProfileUser{{Name: "app", Groups: []string{"ops"}}},
		Files: []cluster.ProfileFile{{
			Path: "/etc/app/a.conf", Content: "one", Mode: "0600", Owner: "app", Restart: []string{"app"},
		}},
	}
}

func items(all []Difference) (names []string) {
	for _, d := range all {
		names = append(names, d.Item)
	}
	return names
}

// TestApply makes a machine what a profile says. A second setup changes nothing. What was changed by hand is mended,
// and alone.
func TestApply(t *testing.T) {
	t.Parallel()
	testkit.NeedRoot(t) // the files of the profile belong to root
	m, r := newTestMachine(t), &Request{Profile: testProfile()}
	found, err := m.Compare(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"package containerd", "package runc", "module br-netfilter", "file " + modulesFile, "sysctl net.core.a",
		"file " + sysctlFile, "user app", "file /etc/app/a.conf",
	}
	if diff := cmp.Diff(want, items(found)); diff != "" {
		t.Fatalf("differences (-want +got):\n%s", diff)
	}
	if len(m.commands) != 1 {
		t.Errorf("a comparison ran %v", m.commands)
	}
	apply := func() (changed []string) {
		t.Helper()
		if err := m.Apply(t.Context(), r, func(s Step) { changed = append(changed, s.Item) }); err != nil {
			t.Fatal(err)
		}
		return changed
	}
	if diff := cmp.Diff(append(want, "service app"), apply()); diff != "" {
		t.Errorf("the first setup (-want +got):\n%s", diff)
	}
	if !slices.Contains(m.commands, "systemctl restart -- app") {
		t.Errorf("the service of the file was not restarted: %v", m.commands)
	}
	if got, _ := os.ReadFile(m.path("/proc/sys/net/core/a")); string(got) != "2" {
		t.Errorf("the setting of the kernel is %q", got)
	}
	if changed := apply(); len(changed) > 0 {
		t.Errorf("the second setup changed %v", changed)
	}
	m.write("/etc/app/a.conf", "two", 0o600)
	if diff := cmp.Diff([]string{"file /etc/app/a.conf", "service app"}, apply()); diff != "" {
		t.Errorf("after a change by hand (-want +got):\n%s", diff)
	}
	r.Profile.Modules, r.Profile.Sysctls = nil, nil
	if diff := cmp.Diff([]string{"file " + modulesFile, "file " + sysctlFile}, apply()); diff != "" {
		t.Errorf("a profile without them (-want +got):\n%s", diff)
	}
}

// TestSettingsOfModules checks a setting that the kernel has once a module of the profile is loaded.
func TestSettingsOfModules(t *testing.T) {
	t.Parallel()
	testkit.NeedRoot(t) // the files of the profile belong to root
	m := newTestMachine(t)
	r := &Request{Profile: &cluster.Profile{
		Name: "worker", Modules: []string{"br_netfilter"}, Sysctls: map[string]string{"net.bridge.calls": "1"},
	}}
	found, err := m.Compare(t.Context(), r)
	want := []string{
		"module br_netfilter", "file " + modulesFile, "sysctl net.bridge.calls", "file " + sysctlFile,
	}
	if diff := cmp.Diff(want, items(found)); diff != "" || err != nil {
		t.Errorf("error %v, differences (-want +got):\n%s", err, diff)
	}
	if err := m.Apply(t.Context(), r, func(Step) {}); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(m.path("/proc/sys/net/bridge/calls")); string(got) != "1" {
		t.Errorf("the setting is %q", got)
	}
	r.Profile.Sysctls = map[string]string{"net.bridge.other": "1"}
	const refusal = "sysctl net.bridge.other: the kernel does not have it"
	if _, err := m.Compare(t.Context(), r); err == nil || !strings.Contains(err.Error(), refusal) {
		t.Errorf("a setting of no module has the error %v", err)
	}
	if err := m.Apply(t.Context(), r, func(Step) {}); err == nil || !strings.Contains(err.Error(), refusal) {
		t.Errorf("the setup of a setting of no module has the error %v", err)
	}
}

// TestRestartSurvivesAFailure checks that the services of a changed file are restarted by the next setup, if the first
// one ended between the file and the restart.
func TestRestartSurvivesAFailure(t *testing.T) {
	t.Parallel()
	testkit.NeedRoot(t) // the files of the profile belong to root
	m, r := newTestMachine(t), &Request{Profile: testProfile()}
	m.fail("systemctl restart", 0)
	var problems []string
	err := m.Apply(t.Context(), r, func(s Step) {
		if s.Problem != "" {
			problems = append(problems, s.Item+": "+s.Problem)
		}
	})
	if err == nil || len(problems) != 1 || !strings.Contains(problems[0], "no space left") {
		t.Fatalf("got error %v and the problems %v", err, problems)
	}
	m.fail("", 0)
	var changed []string
	if err := m.Apply(t.Context(), r, func(s Step) { changed = append(changed, s.Item) }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"service app"}, changed); diff != "" {
		t.Errorf("the next setup (-want +got):\n%s", diff)
	}
}

// TestOtherDistributions checks that a machine without apt names the packages that it lacks, with the way out.
func TestOtherDistributions(t *testing.T) {
	t.Parallel()
	m := newTestMachine(t)
	m.write("/etc/os-release", "ID=alpine\n", 0o644)
	if err := os.Remove(m.path("/usr/bin/apt-get")); err != nil {
		t.Fatal(err)
	}
	_, err := m.Compare(t.Context(), &Request{Profile: testProfile()})
	if err == nil || !strings.Contains(err.Error(), "this machine is alpine") ||
		!strings.Contains(err.Error(), "other") {
		t.Errorf("got error %v", err)
	}
}

// TestSetupsWaitForEachOther checks the lock.
func TestSetupsWaitForEachOther(t *testing.T) {
	t.Parallel()
	m := newTestMachine(t)
	unlock, err := m.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.lock(ctx); err == nil || !strings.Contains(err.Error(), "another setup") {
		t.Errorf("a second setup got error %v", err)
	}
	unlock()
	again, err := m.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestUnmet(t *testing.T) {
	t.Parallel()
	f := &cluster.Facts{
		Arch: "amd64", Kernel: "5.9.1", Memory: 1 << 30, Disk: 1 << 30,
		Hardware: &cluster.Hardware{Threads: 2, Cgroups: 1, Interfaces: []cluster.NetworkInterface{{Speed: 1000}}},
	}
	all := &cluster.MachineNeeds{
		Arch: []string{"arm64"}, CPU: 4, Memory: 2 << 30, Disk: 2 << 30, Kernel: "5.10", Cgroups: 2, LinkSpeed: 10000,
		GPUs: 1,
	}
	if got := Unmet(all, f, -5*time.Second, time.Second); len(got) != 9 {
		t.Errorf("got %d faults, want 9: %v", len(got), got)
	}
	some := &cluster.MachineNeeds{Arch: []string{"amd64"}, CPU: 2, Kernel: "5.9", Cgroups: 1, LinkSpeed: 1000}
	if got := Unmet(some, f, 2500*time.Millisecond, 600*time.Millisecond); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}

// TestUnitWords checks that systemd passes arguments on unchanged.
func TestUnitWords(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"--cores=2-7": `"--cores=2-7"`, `a "b" \c`: `"a \"b\" \\c"`, "50%": `"50%%"`, "$HOME": `"$$HOME"`,
	} {
		if got := unitWord(word); got != want {
			t.Errorf("%s: got %s, want %s", word, got, want)
		}
	}
}

package e2e_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/setup"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
	"github.com/berthd/berth/test/machines"
)

// plainProfile is a profile of machines that run programs as they are.
const plainProfile = `
kind: Profile
name: plain
version: 1
requires: {clock_skew: 1h}
agent: {executor: process, flags: ["--process-isolation=none", "--dns-listen=off"]}
`

// upgradeSite is a site whose machines are nodes with one task each.
type upgradeSite struct {
	*machineSite
	machines []*machines.Machine
}

func newUpgradeSite(t *testing.T, count int) *upgradeSite {
	t.Helper()
	s := &upgradeSite{machineSite: newMachineSite(t)}
	var targets []string
	known := ""
	for i := range count {
		m := machines.Start(t, s.lab.Add(fmt.Sprintf("m%d", i+1)), s.key)
		s.machines = append(s.machines, m)
		targets = append(targets, fmt.Sprintf("m%d=root@%s", i+1, m.Address))
		known += m.Address + " " + m.HostKeyLine + "\n"
	}
	s.Write("known_hosts", known)
	s.add(append(targets, "--profile", s.Write("plain.yaml", plainProfile))...).Want(t, 0, "added")
	s.Berth("run", s.Write("steady.yaml", patientDomain+fmt.Sprintf(`
kind: Service
name: steady
count: %d
template:
  containers:
    - name: main
      command: [sleep, "54321"]
      resources: {cpu: 10m, memory: 8MiB}
  min_healthy_time: 100ms
placement: {anti_affinity: require}
`, count))).Want(t, 0, "healthy")
	return s
}

// patientDomain keeps the tasks of silent nodes for the time that a slow machine needs.
const patientDomain = `
kind: Domain
name: default
silence: {down: 30m, services: 30m}
---`

// newVersion returns a file with another version of the program.
func (s *upgradeSite) newVersion(name string) string {
	s.t.Helper()
	b, err := os.ReadFile(harness.Binary())
	if err != nil {
		s.t.Fatal(err)
	}
	file := filepath.Join(s.Dir, name)
	// bytes behind the end of the program do no harm
	if err := os.WriteFile(file, append(b, name...), 0o700); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// upgrade runs `berth node upgrade` at the desk.
func (s *upgradeSite) upgrade(file string, args ...string) harness.Result {
	s.t.Helper()
	return s.BerthOn(labHost(s.desk), nil, append([]string{
		"node", "upgrade", "--no-agent", "--identity", s.key.File, "--known-hosts",
		filepath.Join(s.Dir, "known_hosts"), "--binary", "amd64=" + file, "--binary", "arm64=" + file,
	}, args...)...)
}

// running identifies the processes and the attempts of all machines.
func (s *upgradeSite) running() string {
	s.t.Helper()
	var all []string
	for _, m := range s.machines {
		all = append(all, m.Name+" "+m.Run(`pgrep -xf "sleep 54321"`))
	}
	return strings.Join(append(all, s.attempts()), "\n")
}

// wantRunning checks that the same processes run.
func (s *upgradeSite) wantRunning(before string) {
	s.t.Helper()
	if got := s.running(); got != before {
		s.t.Errorf("tasks were touched: got\n%s\nwant\n%s", got, before)
	}
}

// clear ends the tasks while their machines are there.
func (s *upgradeSite) clear() {
	s.t.Helper()
	s.Berth("down", filepath.Join(s.Dir, "steady.yaml")).Want(s.t, 0)
}

func (s *upgradeSite) version(m *machines.Machine) string {
	s.t.Helper()
	return filepath.Base(filepath.Dir(m.Run("readlink " + setup.BinaryLink)))
}

// TestNodeUpgrade replaces the agents of nodes while their tasks run. A node whose new agent does not reach the server
// goes back, and the nodes after it are not tried.
func TestNodeUpgrade(t *testing.T) {
	t.Parallel()
	s := newUpgradeSite(t, 2)
	before := s.running()
	m, old := s.machines[0], s.version(s.machines[0])
	file := s.newVersion("second")
	s.upgrade(file, "--dry-run").Want(t, 0, "would-change", "sha256 "+old)

	server, err := url.Parse(s.URLs()[0])
	if err != nil {
		t.Fatal(err)
	}
	// The new agent finds no route to the server, and the old one finds it again.
	m.Run(fmt.Sprintf(`cat >/tmp/trap <<'END'
n=0
while [ $n -lt 6000 ] && [ "$(readlink %[1]s)" = "%[2]s/%[3]s/berth" ]; do sleep 0.05; n=$((n+1)); done
ip route add blackhole %[4]s/32
while [ $n -lt 6000 ] && [ "$(readlink %[1]s)" != "%[2]s/%[3]s/berth" ]; do sleep 0.05; n=$((n+1)); done
ip route del blackhole %[4]s/32
END
setsid sh /tmp/trap >/dev/null 2>&1 </dev/null &`, setup.BinaryLink, setup.VersionsDir, old, server.Hostname()))
	s.upgrade(file, "--timeout=8s", "--settle=1s").Want(t, 1, "m1", "reverted", "skipped", "1 of 2 machines failed")
	for _, m := range s.machines {
		if got := s.version(m); got != old {
			t.Errorf("%s runs %s, want %s", m.Name, got, old)
		}
	}
	s.NodeIs("m1", cluster.NodeReady)
	s.wantRunning(before)
	s.Berth("status", "node/m1").Want(t, 0, "failed upgrade", "not ready in time")
	s.Berth("events", "--node", "m1").Want(t, 0, "node.upgrade-failed")

	timeout := "--timeout=" + testkit.Scaled(time.Minute).String()
	s.upgrade(file, timeout, "--settle=1s").Want(t, 0, "changed")
	for _, m := range s.machines {
		if got := s.version(m); got == old {
			t.Errorf("%s still runs %s", m.Name, got)
		}
		m.Run("test ! -e /var/lib/berth-setup/upgrade.json && test ! -e /root/.cache/berth-setup")
	}
	s.wantRunning(before)
	s.Berth("events", "--node", "m1").Want(t, 0, "node.upgraded")
	if r := s.Berth("status", "node/m1"); strings.Contains(r.Stdout, "failed upgrade") {
		t.Errorf("a good upgrade leaves the failure of the one before: %v", r)
	}
	s.upgrade(file, "m1", "m2").Want(t, 0, "unchanged")
	s.upgrade(file, "m9").Want(t, 2, "m9")

	m.Run("mv " + setup.ArgumentsFile + " /tmp/arguments")
	s.upgrade(s.newVersion("third"), "m1").Want(t, 1, "failed", "did not set up the agent of this machine")
	m.Run("mv /tmp/arguments " + setup.ArgumentsFile)
	s.wantRunning(before)
	s.clear()
}

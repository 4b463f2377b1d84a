//go:build prove

package e2e_test

import (
	"cmp"
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

// bootedProfile is a profile whose items a boot must keep. The module brings the second setting.
const bootedProfile = `
kind: Profile
name: booted
version: 1
requires: {cpu: 1, memory: 512MiB, kernel: "5.10", cgroups: 2, clock_skew: 1m}
packages: {debian: [sudo, openssh-server]}
modules: [br_netfilter]
sysctls: {net.core.somaxconn: "5120", net.bridge.bridge-nf-call-iptables: "1"}
users:
  - {name: app, uid: 7700}
files:
  - {path: /etc/app/greeting, content: "hello\n", owner: app, restart: [greeter]}
agent:
  executor: process
  labels: {rack: r7}
`

// greeterUnit is a service that notes the greeting at each start.
const greeterUnit = `cat >/etc/systemd/system/greeter.service <<'END'
[Service]
Type=oneshot
ExecStart=/bin/sh -c "cat /etc/app/greeting >>/run/greetings"
END
systemctl daemon-reload`

// systemdSite is a site with one machine under systemd, which runs one task.
type systemdSite struct {
	*upgradeSite
	m        *machines.VM
	password []string // the flag with the password of the user admin
}

// TestNodeUnderSystemd makes a node of a machine with systemd. The agent is killed, upgraded, brought back by a failed
// upgrade, booted, and loses its power during an upgrade. Drift is found after boots, and mended.
func TestNodeUnderSystemd(t *testing.T) {
	root := os.Getenv("BERTH_TEST_VM")
	if root == "" {
		testkit.Skip(t, "there is no virtual machine: scripts/systemd makes one")
	}
	s := &systemdSite{upgradeSite: &upgradeSite{machineSite: newMachineSite(t)}}
	s.password = []string{"--sudo-password-file", s.Write("password", "secret")}
	s.m = machines.StartVM(t, root, cmp.Or(os.Getenv("BERTH_TEST_ACCEL"), "tcg"), s.lab.Add("m1"), s.key)
	s.Write("known_hosts", s.m.Address+" "+s.m.HostKeyLine+"\n")
	s.m.Run(greeterUnit)
	s.checkAddition()
	s.Berth("run", s.Write("steady.yaml", patientDomain+steadyService), "--timeout", "5m").Want(t, 0, "healthy")
	s.checkKills()
	first := s.installed()
	file := s.newVersion("second")
	s.checkFailedUpgrade(file)
	s.checkUpgrade(file, first)
	s.checkBoot("systemctl reboot")
	s.checkPowerCut(s.newVersion("third"))
	s.checkDriftAndRepair()
	s.clear()
}

// step prints what begins.
func (s *systemdSite) step(what string) { s.t.Logf("%s: %s", time.Now().Format(time.TimeOnly), what) }

// node runs a command about the machine at the desk.
func (s *systemdSite) node(verb string, args ...string) harness.Result {
	s.t.Helper()
	r := s.BerthOn(labHost(s.desk), nil, append(append([]string{
		"node", verb, "--no-agent", "--identity", s.key.File, "--known-hosts", filepath.Join(s.Dir, "known_hosts"),
	}, s.password...), args...)...)
	s.t.Logf("berth node %s in %v:\n%s", verb, r.Took.Round(time.Millisecond), r.Stderr)
	return r
}

// installed is the version that the machine runs.
func (s *systemdSite) installed() string {
	s.t.Helper()
	return filepath.Base(filepath.Dir(s.m.Run("readlink " + setup.BinaryLink)))
}

// want compares what a command prints on the machine.
func (s *systemdSite) want(line, want string) {
	s.t.Helper()
	if got := s.m.Run(line); got != want {
		s.t.Errorf("%s: got %q, want %q", line, got, want)
	}
}

// taskProcess prints the main process of the task, and its start.
const taskProcess = `pid=$(pgrep -xf "sleep 54321") && echo $pid $(cut -d " " -f 22 /proc/$pid/stat)`

func (s *systemdSite) checkAddition() {
	s.step("add")
	file := s.Write("booted.yaml", bootedProfile)
	s.Berth("run", file).Want(s.t, 0)
	add := []string{"m1=admin@" + s.m.Address, "--timeout", "10m", "--profile", file}
	s.node("add", append(add, "--dry-run")...).Want(s.t, 0, "module br_netfilter",
		"sysctl net.bridge.bridge-nf-call-iptables", "missing")
	s.node("add", add...).Want(s.t, 0, "added")
	s.NodeIs("m1", cluster.NodeReady)
	s.want("systemctl is-active berth-agent; systemctl is-enabled berth-agent", "active\nenabled")
	s.want("systemctl show -P NeedDaemonReload berth-agent; systemctl show -P StartLimitIntervalUSec berth-agent",
		"no\n0")
	s.want("systemd-analyze verify --man=no /etc/systemd/system/berth-agent.service 2>&1", "")
	s.want("journalctl --no-pager -o cat -u berth-agent | grep -c joined", "1")
	s.want("cat /run/greetings; ls -A /home/admin/.cache /var/lib/berth-setup", "hello\n"+
		"/home/admin/.cache:\n\n/var/lib/berth-setup:\nlock")
	s.node("add", add...).Want(s.t, 0, "unchanged", "0 changes")
}

// checkKills ends the agent in several ways. The task runs on.
func (s *systemdSite) checkKills() {
	s.step("kill")
	before := s.m.Run(taskProcess)
	s.m.Run("for n in 1 2 3 4 5 6 7 8; do systemctl restart berth-agent; done")
	s.NodeIs("m1", cluster.NodeReady)
	pid := s.m.Run("systemctl show -P MainPID berth-agent")
	s.m.Run("systemctl kill --kill-whom=main -s KILL berth-agent")
	testkit.Eventually(s.t, time.Minute, func() error {
		is, err := s.m.Try("systemctl show -P MainPID berth-agent")
		if err == nil && (is == pid || is == "0") {
			err = fmt.Errorf("the agent is the process %s", is)
		}
		return err
	})
	s.NodeIs("m1", cluster.NodeReady)
	s.want(taskProcess, before)
}

// checkFailedUpgrade upgrades to an agent that does not reach the server.
func (s *systemdSite) checkFailedUpgrade(file string) {
	s.step("an upgrade that goes back")
	server, err := url.Parse(s.URLs()[0])
	if err != nil {
		s.t.Fatal(err)
	}
	before, old := s.m.Run(taskProcess), s.installed()
	s.m.Run(fmt.Sprintf(`cat >/root/trap <<'END'
n=0
while [ $n -lt 3000 ] && [ "$(readlink %[1]s)" = "%[2]s/%[3]s/berth" ]; do sleep 0.2; n=$((n+1)); done
ip route add blackhole %[4]s/32
while [ $n -lt 3000 ] && [ "$(readlink %[1]s)" != "%[2]s/%[3]s/berth" ]; do sleep 0.2; n=$((n+1)); done
ip route del blackhole %[4]s/32
END
systemd-run --quiet --unit=trap sh /root/trap`, setup.BinaryLink, setup.VersionsDir, old, server.Hostname()))
	s.upgrade(file, append(s.password, "--timeout=20s", "--settle=1s")...).Want(s.t, 1, "reverted")
	s.NodeIs("m1", cluster.NodeReady)
	s.want("readlink "+setup.BinaryLink, setup.VersionsDir+"/"+old+"/berth")
	s.want(taskProcess, before)
	s.checkNoUpgrade()
	s.Berth("events", "--node", "m1").Want(s.t, 0, "node.upgrade-failed")
}

// checkNoUpgrade checks that nothing of an upgrade is left.
func (s *systemdSite) checkNoUpgrade() {
	s.t.Helper()
	testkit.Eventually(s.t, time.Minute, func() error {
		is, err := s.m.Try("systemctl is-active berth-upgrade; ls /etc/systemd/system/*/ | grep -c berth-upgrade; " +
			"systemctl --failed --no-legend; cat /var/lib/berth-setup/upgrade.json 2>&1; true")
		if err == nil && is != "inactive\n0\ncat: /var/lib/berth-setup/upgrade.json: No such file or directory" {
			err = fmt.Errorf("of the upgrade there is %q", is)
		}
		return err
	})
}

func (s *systemdSite) checkUpgrade(file, old string) {
	s.step("an upgrade")
	before := s.m.Run(taskProcess)
	s.upgrade(file, append(s.password, "--timeout=10m", "--settle=1s")...).Want(s.t, 0, "changed")
	if got := s.installed(); got == old {
		s.t.Errorf("the machine runs %s after the upgrade", got)
	}
	s.want(taskProcess, before)
	s.checkNoUpgrade()
	s.Berth("events", "--node", "m1").Want(s.t, 0, "node.upgraded")
}

// checkBoot boots the machine. The agent starts again, the attempt before is over, and the task runs once.
func (s *systemdSite) checkBoot(command string) {
	s.step("boot by " + command)
	before := s.attempts()
	s.m.Boot(command)
	s.NodeIs("m1", cluster.NodeReady)
	testkit.Eventually(s.t, 2*time.Minute, func() error {
		is := s.attempts()
		if is == before || !strings.Contains(is, "running") {
			return fmt.Errorf("the tasks are\n%s\nand were\n%s", is, before)
		}
		return nil
	})
	s.t.Logf("the tasks were\n%s\nand are\n%s", before, s.attempts())
	s.want(`pgrep -cxf "sleep 54321"`, "1")
	s.want("systemctl is-active berth-agent", "active")
}

// checkPowerCut cuts the power during an upgrade. The machine goes back after the boot.
func (s *systemdSite) checkPowerCut(file string) {
	s.step("a power cut during an upgrade")
	old := s.installed()
	s.m.Send(file, "/root/third")
	s.m.Run(fmt.Sprintf(`echo '{"confirmation": %d}' | /root/third machine upgrade --request -`,
		testkit.Scaled(time.Minute)))
	if got := s.installed(); got == old {
		s.t.Errorf("the machine still runs %s", got)
	}
	s.want("systemctl is-active berth-upgrade; systemctl is-enabled berth-upgrade", "active\nenabled")
	s.checkBoot("echo b >/proc/sysrq-trigger")
	testkit.Eventually(s.t, 3*time.Minute, func() error {
		is, err := s.m.Try("readlink " + setup.BinaryLink)
		if err == nil && is != setup.VersionsDir+"/"+old+"/berth" {
			err = fmt.Errorf("the machine runs %s, want %s", is, old)
		}
		return err
	})
	s.checkNoUpgrade()
	s.NodeIs("m1", cluster.NodeReady)
	s.want("journalctl --no-pager -o cat -u berth-upgrade | grep -c 'not confirmed in time'", "1")
}

func (s *systemdSite) checkDriftAndRepair() {
	s.step("drift")
	agent, before := s.m.Run("systemctl show -P MainPID berth-agent"), s.m.Run(taskProcess)
	s.node("drift", "m1").Want(s.t, 0, "unchanged")
	s.m.Run("rm -f /run/greetings; rmmod br_netfilter; rm /etc/modules-load.d/berth-profile.conf; " +
		"echo other >/etc/app/greeting; echo 128 >/proc/sys/net/core/somaxconn")
	s.node("drift", "m1").Want(s.t, 1, "would-change", "module br_netfilter", "file /etc/app/greeting",
		"net.core.somaxconn", "net.bridge.bridge-nf-call-iptables")
	s.node("repair", "m1").Want(s.t, 0, "changed")
	s.want("cat /run/greetings /proc/sys/net/core/somaxconn /proc/sys/net/bridge/bridge-nf-call-iptables",
		"hello\n5120\n1")
	s.node("drift", "m1").Want(s.t, 0, "unchanged")
	s.want("systemctl show -P MainPID berth-agent", agent)
	s.want(taskProcess, before)
}

package e2e_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
	"github.com/berthd/berth/test/machines"
	"github.com/berthd/berth/test/netlab"
)

// workerProfile is a profile of machines whose packages are there. Its requirement of memory is %s.
const workerProfile = `
kind: Profile
name: worker
version: %d
requires: {cpu: 1, memory: %s, kernel: "3.10", clock_skew: 1m}
packages: {debian: [sudo, openssh-server]}
sysctls: {net.core.somaxconn: "%d"}
users:
  - {name: app, uid: 7700, groups: [operators]}
files:
  - {path: /etc/app/greeting, content: "hello\n", mode: "0640", owner: "app:operators"}
agent:
  executor: process
  labels: {rack: r7}
  flags: ["--process-isolation=none", "--dns-listen=off"]
`

// machineSite is a fleet of one server, and a desk from where machines are added.
type machineSite struct {
	*harness.Fleet
	t    *testing.T
	lab  *netlab.Lab
	desk *netlab.Host
	key  machines.Key
	// servers are the hosts of the servers of a passive site.
	servers []*netlab.Host
}

func newMachineSite(t *testing.T) *machineSite {
	t.Helper()
	testkit.NeedCommand(t, "sshd")
	lab := netlab.New(t)
	s := &machineSite{Fleet: harness.NewFleet(t), t: t, lab: lab, desk: lab.Add("desk")}
	s.key = machines.NewKey(t, s.Dir)
	s.Start(labHost(lab.Add("s1")))
	return s
}

// labHost is a machine of a lab as a fleet takes it. "ip netns exec" would hide the control groups from it.
func labHost(h *netlab.Host) harness.Host {
	return harness.Host{
		Name: h.Name, Address: h.Address, Prefix: []string{"nsenter", "--net=/var/run/netns/" + h.Space},
	}
}

// add runs `berth node add` at the desk with the key.
func (s *machineSite) add(args ...string) harness.Result {
	s.t.Helper()
	return s.BerthOn(labHost(s.desk), nil, append([]string{
		"node", "add", "--no-agent", "--identity", s.key.File, "--known-hosts", filepath.Join(s.Dir, "known_hosts"),
		"--timeout", "10m",
	}, args...)...)
}

// profile writes a version of the profile to a file and applies it.
func (s *machineSite) profile(version, backlog int, memory string) string {
	s.t.Helper()
	file := s.Write(fmt.Sprintf("worker%d.yaml", version), fmt.Sprintf(workerProfile, version, memory, backlog))
	return file
}

// TestNodeAdd makes a node of a machine: with an unknown key, as a dry run, unfit, for real, again, changed, and by a
// user with sudo behind a jump host.
func TestNodeAdd(t *testing.T) {
	t.Parallel()
	s := newMachineSite(t)
	m := machines.Start(t, s.lab.Add("m1"), s.key)
	target := "m1=root@" + m.Address

	s.add(target).Want(t, 1, m.HostKey, "no known_hosts file has", "--accept-new-host-keys")
	key := "--host-key=" + m.HostKey
	s.add(target, "--host-key=SHA256:AAAA").Want(t, 1, m.HostKey, "is not the key of --host-key")

	worker := s.profile(1, 512, "64MiB")
	s.Berth("run", worker).Want(t, 0)
	s.add(target, key, "--profile", s.profile(9, 512, "999TiB")).Want(t, 1, "want 999 TiB", "nothing was changed")
	s.add(target, key, "--profile", "worker", "--dry-run").Want(t, 0, "would-change", "file /etc/app/greeting",
		"missing", "sysctl net.core.somaxconn", "user app", "binary /usr/local/bin/berth")
	m.Run("test ! -e /usr/local/bin/berth && test ! -e /root/.cache/berth-setup && test ! -e /etc/app")
	if page, err := s.Client().Nodes(t.Context(), client.ListOptions{}); err != nil || len(page.Items) > 0 {
		t.Fatalf("after a dry run there are the nodes %v and error %v", page.Items, err)
	}

	s.add(target, key, "--profile", "worker@1", "--pool", "edge").Want(t, 0, "added")
	s.NodeIs("m1", cluster.NodeReady)
	got := m.Run("stat -c '%a %U %G' /etc/app/greeting; cat /etc/app/greeting /proc/sys/net/core/somaxconn; " +
		"id -u app")
	if got != "640 app operators\nhello\n512\n7700" {
		t.Errorf("the machine has %q", got)
	}
	m.Run("test ! -e /root/.cache/berth-setup && test ! -e /var/lib/berth-setup/join-token")
	n, err := s.Client().Node(t.Context(), "m1")
	if err != nil {
		t.Fatal(err)
	}
	s.checkNode(n, m)
	s.runsTasks("m1")

	s.add(target, key, "--profile", "worker@1").Want(t, 0, "unchanged", "0 changes")
	m.Run("echo other >/etc/app/greeting; chmod 600 /etc/app/greeting")
	s.add(target, key, "--profile", "worker@1").Want(t, 0, "changed", "1 change")
	s.checkDrift(m)
	s.Berth("run", s.profile(1, 1024, "64MiB")).Want(t, 2, "1 conflict", "stored worker@1")
	s.Berth("delete", "profile/worker@1").Want(t, 2, "is that of 1 node: m1")
	if again, err := s.Client().Node(t.Context(), "m1"); err != nil || again.Session != n.Session {
		t.Errorf("the agent was replaced without need: session %d, then %d, error %v", n.Session, again.Session, err)
	}

	other := machines.Start(t, s.lab.Add("m2"), s.key)
	s.lab.Part(s.desk, other.Host)
	jump := []string{
		"m2=admin@" + other.Address, "--jump", "root@" + m.Address, "--accept-new-host-keys", "--profile", worker,
	}
	s.add(jump...).Want(t, 1, "sudo of the user admin wants a password", "--ask-sudo-password")
	s.add(append(jump, "--sudo-password-file", s.Write("wrong", "wrong"))...).Want(t, 1,
		"sudo does not accept the password")
	s.add(append(jump, "--sudo-password-file", s.Write("secret", "secret"))...).Want(t, 0, "added")
	s.NodeIs("m2", cluster.NodeReady)
}

// checkNode checks what the control plane knows of a machine.
func (s *machineSite) checkNode(n api.NodeView, m *machines.Machine) {
	s.t.Helper()
	switch h := n.Facts.Hardware; {
	case n.Pool != "edge" || n.Labels["rack"] != "r7":
		s.t.Errorf("the node is in the pool %q with the labels %v", n.Pool, n.Labels)
	case h == nil || h.Threads == 0 || h.Cgroups == 0 || !strings.Contains(fmt.Sprint(h.Interfaces), m.Address):
		s.t.Errorf("the hardware is %+v", h)
	case n.Setup == nil || n.Setup.Address != "root@"+m.Address || n.Setup.Profile == nil ||
		*n.Setup.Profile != cluster.Ref{Name: "worker", Version: 1}:
		s.t.Errorf("the setup is %+v", n.Setup)
	case len(n.Setup.Routes) != 1 || n.Setup.Routes[0].Problem != "" || n.Setup.Routes[0].Address != m.Address:
		s.t.Errorf("the routes are %+v", n.Setup.Routes)
	}
	s.Berth("status", "node/m1").Want(s.t, 0, "profile", "worker@1", "root@"+m.Address, "control groups", "interface")
}

// checkDrift changes a file of the machine by hand, and mends it again.
func (s *machineSite) checkDrift(m *machines.Machine) {
	s.t.Helper()
	drift := func(verb string, args ...string) harness.Result {
		return s.BerthOn(labHost(s.desk), nil, append([]string{
			"node", verb, "--no-agent", "--identity", s.key.File, "--host-key", m.HostKey,
		}, args...)...)
	}
	drift("drift").Want(s.t, 0, "unchanged")
	m.Run("chmod 666 /etc/app/greeting")
	drift("drift", "m1").Want(s.t, 1, "would-change", "file /etc/app/greeting", "0666", "0640")
	s.Berth("events", "--node", "m1").Want(s.t, 0, "node.drifted", "differs from its profile: file /etc/app/greeting")
	s.Berth("status", "node/m1").Want(s.t, 0, "drift")
	m.Run("test $(stat -c %a /etc/app/greeting) = 666")
	drift("repair", "m1").Want(s.t, 0, "changed", "1 change")
	m.Run("test $(stat -c %a /etc/app/greeting) = 640 && test ! -e /root/.cache/berth-setup")
	s.Berth("events", "--node", "m1").Want(s.t, 0, "node.repaired")
	drift("drift", "m1", "m9").Want(s.t, 2, "m9")
}

// runsTasks runs a service on a node.
func (s *machineSite) runsTasks(node string) {
	s.t.Helper()
	s.Berth("run", s.Write("probe.yaml", fmt.Sprintf(`
kind: Service
name: probe
count: 1
template:
  containers:
    - name: main
      command: [sleep, "1000"]
      resources: {cpu: 10m, memory: 8MiB}
  min_healthy_time: 100ms
placement:
  constraints: [{attribute: node.name, value: %s}]
`, node))).Want(s.t, 0, "healthy")
	s.Berth("down", filepath.Join(s.Dir, "probe.yaml")).Want(s.t, 0)
}

// attempts identifies the attempts of all tasks.
func (s *machineSite) attempts() string {
	s.t.Helper()
	page, err := s.Client().Tasks(s.t.Context(), client.TaskFilter{}, client.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	var all []string
	for _, t := range page.Items {
		all = append(all, fmt.Sprintf("%s %s %s %d", t.ID, t.UUID, t.State, t.Restarts))
	}
	return strings.Join(all, "\n")
}

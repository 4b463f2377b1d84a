//go:build prove

package e2e_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
	"github.com/berthd/berth/test/machines"
)

// TestMachinesOfAnExternalScheduler goes the whole way from bare machines to tasks of a scheduler outside of Berth. Two
// machines get the profile and the API of a node, and are nodes of the scheduler's domain. The scheduler learns of
// them from its stream, places tasks on them, and replaces those of a machine that falls silent.
func TestMachinesOfAnExternalScheduler(t *testing.T) {
	t.Parallel()
	python := testkit.NeedPython(t)
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	s := newMachineSite(t)
	s.Berth("run", s.Write("domain.yaml", fmt.Sprintf(placedOutside, "spread"))).Want(t, 0)
	secret := s.Berth("token", "create", "--role", "viewer", "--name", "robot")
	secret.Want(t, 0)
	runProgram(t, "one", append(slices.Clone(labHost(s.desk).Prefix),
		python, filepath.Join(root, "examples", "schedulers", "spread.py"),
		"--server", strings.Join(s.URLs(), ","), "--domain", "ci", "--instance", "one",
		"--token-file", s.Write("token-of-the-scheduler", secret.Stdout),
		"--ca-file", filepath.Join(s.Servers[0].Dir, "pki", "ca.crt"))...)

	var all []*machines.Machine
	var targets []string
	known := ""
	for i := range 2 {
		m := machines.Start(t, s.lab.Add(fmt.Sprintf("m%d", i+1)), s.key)
		all = append(all, m)
		targets = append(targets, m.Name+"=root@"+m.Address)
		known += m.Address + " " + m.HostKeyLine + "\n"
	}
	s.Write("known_hosts", known)
	s.Berth("run", s.profile(1, 512, "64MiB")).Want(t, 0)
	s.add(append(targets, "--profile", "worker@1", "--domain", "ci")...).Want(t, 0, "added")

	nodes := []string{"m1", "m2"}
	inDomain(t, s.Fleet, "ci", nodes)
	for _, name := range nodes {
		n, err := s.Client().Node(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if h := n.Facts.Hardware; h == nil || h.Threads == 0 || len(h.Interfaces) == 0 || n.Setup == nil ||
			n.Setup.Profile.String() != "worker@1" {
			t.Errorf("node %s has the facts %+v and the setup %+v", name, n.Facts.Hardware, n.Setup)
		}
	}
	s.Berth("run", s.Write("first.yaml", fmt.Sprintf(firstBuild, 2))).Want(t, 0)
	healthyOn(t, s.Fleet, "build/first", 2, nodes)
	for _, m := range all {
		m.Run("test $(cat /proc/sys/net/core/somaxconn) = 512 && test $(cat /etc/app/greeting) = hello")
		out := m.Run("/usr/local/bin/berth host ps && /usr/local/bin/berth host resources")
		if !strings.Contains(out, "build.first.") {
			t.Errorf("the API of node %s shows\n%s", m.Name, out)
		}
		out, err := m.Try("/usr/local/bin/berth host rm first")
		if err == nil || !strings.Contains(out, "domain ci") {
			t.Errorf("the API of node %s let a stranger delete a task: %s", m.Name, out)
		}
	}

	s.lab.Isolate(all[0].Host)
	s.NodeIs("m1", cluster.NodeDown)
	healthyOn(t, s.Fleet, "build/first", 2, nodes[1:])
	s.lab.Heal()
	s.NodeIs("m1", cluster.NodeReady)
	s.Berth("down", filepath.Join(s.Dir, "first.yaml")).Want(t, 0)
}

// firstBuild is a service of the cluster of an external scheduler. %d is the number of its tasks.
const firstBuild = `
kind: Service
cluster: build
name: first
count: %d
template:
  containers:
    - name: main
      command: [sleep, "54321"]
      resources: {cpu: 10m, memory: 8MiB}
  min_healthy_time: 100ms
`

package e2e_test

import (
	"testing"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/test/harness"
	"github.com/berthd/berth/test/machines"
)

// TestAddStandaloneNode makes a node without servers of a machine, twice. It cannot become a node of a fleet as well.
func TestAddStandaloneNode(t *testing.T) {
	t.Parallel()
	s := newMachineSite(t)
	m := machines.Start(t, s.lab.Add("m1"), s.key)
	s.Write("known_hosts", m.Address+" "+m.HostKeyLine+"\n")
	target, plain := "m1=root@"+m.Address, s.Write("plain.yaml", plainProfile)
	s.add(target, "--standalone", "--pool", "edge").Want(t, 2, "--standalone excludes")
	alone := func(args ...string) harness.Result {
		return s.add(append([]string{
			target, "--standalone", "--profile", plain, "--addr", "unix:///nowhere",
		}, args...)...)
	}
	alone("--dry-run").Want(t, 0, "would-change")
	m.Run("test ! -e /var/lib/berth")
	alone().Want(t, 0, "added")
	alone().Want(t, 0, "unchanged", "0 changes")
	m.Run("berth node ls | grep -q m1; test ! -e /root/.cache/berth-setup")
	m.Run(`mkdir /tmp/site && cat >/tmp/site/one.yaml <<'END'
kind: Cluster
name: one
permissions: [no-isolation, root, host-network]
---
kind: Service
cluster: one
name: steady
count: 1
template:
  containers:
    - name: main
      command: [sleep, "54321"]
      resources: {cpu: 10m, memory: 8MiB}
  min_healthy_time: 100ms
END
berth converge /tmp/site; test $? = 2 && berth converge /tmp/site && pgrep -xf 'sleep 54321'`)
	s.add(target, "--profile", plain).Want(t, 1, "the machine is a standalone node")
	if page, err := s.Client().Nodes(t.Context(), client.ListOptions{}); err != nil || len(page.Items) > 0 {
		t.Errorf("the fleet has the nodes %v and error %v", page.Items, err)
	}
}

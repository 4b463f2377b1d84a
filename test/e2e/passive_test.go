package e2e_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/test/harness"
	"github.com/berthd/berth/test/machines"
	"github.com/berthd/berth/test/netlab"
)

// closed is a firewall of a machine that lets no connection begin there.
const closed = "nft 'add table ip closed; add chain ip closed out { type filter hook output priority 0; }; " +
	"add rule ip closed out oifname eth0 tcp flags & (syn | ack) == syn drop'"

// newPassiveSite is a fleet of three servers that know the key of machines.
func newPassiveSite(t *testing.T) *machineSite {
	t.Helper()
	lab := netlab.New(t)
	s := &machineSite{Fleet: harness.NewFleet(t), t: t, lab: lab, desk: lab.Add("desk")}
	s.key = machines.NewKey(t, s.Dir)
	s.Flags = []string{"--ssh-identity", s.key.File, "--ssh-known-hosts", filepath.Join(s.Dir, "known_hosts")}
	var hosts []harness.Host
	for _, name := range []string{"s1", "s2", "s3"} {
		s.servers = append(s.servers, lab.Add(name))
		hosts = append(hosts, labHost(s.servers[len(s.servers)-1]))
	}
	s.Start(hosts...)
	return s
}

// closedMachine starts a machine from which no connection begins.
func (s *machineSite) closedMachine(name string) *machines.Machine {
	s.t.Helper()
	m := machines.Start(s.t, s.lab.Add(name), s.key)
	m.Run(closed)
	if _, err := m.Try("timeout 2 bash -c 'exec 3<>/dev/tcp/" + s.Servers[0].Host.Address + "/7071'"); err == nil {
		s.t.Fatal("the machine reaches a server: the test shows nothing")
	}
	return m
}

// node returns a node as the fleet shows it.
func (s *machineSite) node(name string) api.NodeView {
	s.t.Helper()
	n, err := s.Client().Node(s.t.Context(), name)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// passiveService is a service on the node %s.
const passiveService = `
kind: Service
name: %[1]s
count: 1
template:
  containers:
    - name: main
      command: [sh, -c, "echo it speaks; exec sleep 1000"]
      resources: {cpu: 10m, memory: 8MiB}
  min_healthy_time: 100ms
placement:
  constraints: [{attribute: node.name, value: %[1]s}]
`

// TestPassiveNodes makes nodes of machines that can open no connection. The servers dial the agent of one directly and
// that of the other through its SSH server, behind a jump host. Tasks, logs and terminals work. Tasks survive when the
// server that the agent uses is killed, when the agent is killed, and when the node is dialed no longer for a while.
func TestPassiveNodes(t *testing.T) {
	t.Parallel()
	s := newPassiveSite(t)
	m1, m2 := s.closedMachine("m1"), s.closedMachine("m2")
	gate := machines.Start(t, s.lab.Add("gate"), s.key)
	known := ""
	for _, m := range []*machines.Machine{m1, m2, gate} {
		known += m.Address + " " + m.HostKeyLine + "\n"
	}
	s.Write("known_hosts", known)
	s.lab.Part(s.desk, m2.Host)
	for _, h := range s.servers {
		s.lab.Part(h, m2.Host)
	}
	profile := s.profile(1, 512, "64MiB")
	s.add("m1=root@"+m1.Address, "--profile", profile).Want(t, 1, "cannot reach the server", "nothing was changed",
		"--passive")
	s.add("m1=root@"+m1.Address, "--profile", profile, "--passive", "ftp").Want(t, 2, "want tcp or ssh")
	s.add("m1=root@"+m1.Address, "--profile", profile, "--passive", "tcp").Want(t, 0, "added")
	s.add("m2=root@"+m2.Address, "--profile", profile, "--passive", "ssh", "--jump", "root@"+gate.Address).Want(t, 0,
		"added")
	for _, name := range []string{"m1", "m2"} {
		s.NodeIs(name, cluster.NodeReady)
		s.Berth("run", s.Write(name+".yaml", fmt.Sprintf(passiveService, name))).Want(t, 0, "healthy")
		defer s.Berth("down", filepath.Join(s.Dir, name+".yaml"))
		s.Prints("it speaks", "logs", "service/"+name)
		s.Berth("exec", "service/"+name, "--", "echo", "a terminal too").Want(t, 0, "a terminal too")
	}
	s.Berth("status", "node/m1").Want(t, 0, "dialed at", m1.Address+":7073")
	s.Berth("status", "node/m2").Want(t, 0, "dialed at", "ssh://root@"+m2.Address)
	if out, err := m2.Try("ss -Htln 'sport = :7073'"); err != nil || !strings.Contains(out, "127.0.0.1:7073") {
		t.Errorf("the agent behind SSH listens on %q, %v; want the loopback alone", out, err)
	}
	// The same addition again changes nothing.
	s.add("m1=root@"+m1.Address, "--profile", profile, "--passive", "tcp").Want(t, 0, "unchanged")

	before := s.attempts()
	s.loseServerOf("m1")
	s.loseServerOf("m2")
	for _, m := range []*machines.Machine{m1, m2} {
		session := s.node(m.Name).Session
		m.Run("pkill -KILL -f '[b]erth agent'")
		s.hasNewSession(m.Name, session)
	}
	// A node that is dialed no longer becomes silent once its agent is gone, and returns.
	s.Berth("node", "dial", "m1", "--off").Want(t, 0, "is dialed no longer")
	session := s.node("m1").Session
	m1.Run("pkill -KILL -f '[b]erth agent'")
	s.Eventually(2*time.Minute, func() error {
		if n := s.node("m1"); n.State == cluster.NodeReady {
			return fmt.Errorf("the node is %s", n.State)
		}
		return nil
	})
	s.Berth("node", "dial", "m1", "192.0.2.1:x").Want(t, 2, "the port is not a number")
	s.Berth("node", "dial", "m1", m1.Address).Want(t, 0, "is dialed at "+m1.Address)
	s.hasNewSession("m1", session)
	s.Eventually(time.Minute, func() error { // the states follow the sessions
		if after := s.attempts(); after != before {
			return fmt.Errorf("the tasks are\n%s\nbefore the faults\n%s", after, before)
		}
		return nil
	})
	s.Berth("node", "dial", "m9", "ssh://root@"+m1.Address+":9").Want(t, 0)
	s.Eventually(time.Minute, func() error {
		if n := s.node("m9"); !strings.Contains(n.DialProblem, "refused") {
			return fmt.Errorf("the problem is %q", n.DialProblem)
		}
		return nil
	})
}

// loseServerOf kills the server that an agent uses. The agent goes on at another one.
func (s *machineSite) loseServerOf(node string) {
	s.t.Helper()
	var server *harness.Server
	var session uint64
	s.Eventually(time.Minute, func() error { // a server that was just lost is not named
		n := s.node(node)
		members, err := s.Members()
		for _, m := range members {
			for _, one := range s.Servers {
				if m.ID == n.Server && filepath.Base(one.Dir) == m.Name {
					server, session = one, n.Session
					return nil
				}
			}
		}
		return fmt.Errorf("no server has the session of %s: %q, error %w", node, n.Server, err)
	})
	server.Kill()
	s.hasNewSession(node, session)
	server.Start()
	s.Voters(3)
}

// hasNewSession waits until a node is ready with a later session.
func (s *machineSite) hasNewSession(node string, after uint64) {
	s.t.Helper()
	s.Eventually(2*time.Minute, func() error {
		n := s.node(node)
		if n.State != cluster.NodeReady || n.Session <= after {
			return fmt.Errorf("the node %s is %s in the session %d, want one after %d; %s", node, n.State, n.Session,
				after, n.DialProblem)
		}
		return nil
	})
}

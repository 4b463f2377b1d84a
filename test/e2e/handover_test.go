package e2e_test

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/test/harness"
)

// movable is a standalone node, and a fleet that it may move to.
type movable struct {
	*harness.Site
	t     *testing.T
	fleet *harness.Fleet
	node  *harness.Daemon
	host  *client.Host
}

// newMovable starts a standalone node with two tasks of the service hello, and a fleet of one server. The tasks wait
// for their node, however long it is silent on a slow machine.
func newMovable(t *testing.T, executor string) (m *movable, before []api.TaskView) {
	t.Helper()
	m = &movable{Site: harness.New(t, executor), t: t}
	m.node = m.Standalone()
	m.Berth("run", m.Write("hello.yaml", fmt.Sprintf(hello, 1, 2)+"on_disconnect: wait\n")).Want(t, 0, "2/2")
	before = running(t, m.Site, "hello", 2)
	m.fleet = harness.NewFleet(t)
	m.fleet.Start(harness.Loopback(1)...)
	var err error
	if m.host, err = client.NewHost(client.Config{Addr: "unix://" + m.socket()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.host.Close)
	return m, before
}

func (m *movable) socket() string { return filepath.Join(m.AgentDir, "host.sock") }

// move runs `berth node adopt` or `berth node release` against the fleet.
func (m *movable) move(verb string, flags ...string) harness.Result {
	m.t.Helper()
	return m.fleet.Berth(append([]string{"node", verb, harness.NodeName, "--socket", m.socket()}, flags...)...)
}

// phase waits until the node shows a phase.
func (m *movable) phase(want api.HandoverPhase) {
	m.t.Helper()
	m.Eventually(soon, func() error {
		s, err := m.host.Handover(m.t.Context())
		if err == nil && s.Phase != want {
			err = fmt.Errorf("the phase is %s, want %s: %s", s.Phase, want, s.Problem)
		}
		return err
	})
}

// same checks that tasks have the same attempts and processes.
func (m *movable) same(before, after []api.TaskView) {
	m.t.Helper()
	samePids(m.t, before, after)
	attempts := map[string]cluster.TaskID{}
	for i := range after {
		attempts[after[i].UUID] = after[i].ID
		if after[i].Restarts != 0 {
			m.t.Errorf("%s was restarted %d times", after[i].ID, after[i].Restarts)
		}
	}
	for i := range before {
		if id := attempts[before[i].UUID]; id != before[i].ID {
			m.t.Errorf("the attempt %s of %s is of %q now", before[i].UUID, before[i].ID, id)
		}
	}
}

// A standalone node moves to a fleet and back. Its tasks keep their ids, attempts and processes, and both owners change
// the service in their time. The process obeys the last owner when it starts again with the same flags.
func TestNodeMovesToAFleetAndBack(t *testing.T) {
	t.Parallel()
	harness.Either(t, harness.Process, func(t *testing.T, executor string) {
		m, before := newMovable(t, executor)
		m.move("adopt", "--dry-run", "--domain", "edge").Want(t, 2, "there is no domain edge")
		m.fleet.Berth("run", m.fleet.Write("edge.yaml", "kind: Domain\nname: edge\n")).Want(t, 0)
		m.move("adopt", "--dry-run", "--domain", "edge").Want(t, 0, "2 tasks, 1 service")
		m.phase(api.HandoverOwn)
		m.move("adopt", "--domain", "edge").Want(t, 0, "released", "ready in the domain edge, and 2 tasks ran on")
		m.same(before, running(t, m.fleet.Site, "hello", 2))
		m.move("adopt", "--domain", "edge").Want(t, 0, "2 tasks ran on")

		m.node.Kill()
		m.node = m.StartStandalone()
		m.phase(api.HandoverServers)
		m.fleet.NodeIs(harness.NodeName, cluster.NodeReady)
		m.same(before, running(t, m.fleet.Site, "hello", 2))
		m.fleet.Berth("scale", "hello", "3").Want(t, 0, "3/3")
		before = running(t, m.fleet.Site, "hello", 3)

		m.move("release").Want(t, 0, "3 tasks, 1 service", "drives itself")
		m.same(before, running(t, m.Site, "hello", 3))
		m.move("release").Want(t, 0, "drives itself")
		m.fleet.Eventually(soon, func() error { // the fleet has forgotten all
			page, err := m.fleet.Client().Services(t.Context(), cluster.DefaultCluster, client.ListOptions{})
			if err == nil && len(page.Items) > 0 {
				err = errors.New("the fleet still has the service")
			}
			return err
		})
		m.Berth("scale", "hello", "2").Want(t, 0)

		m.Eventually(soon, func() error { // the third task has ended
			if r := m.move("adopt", "--dry-run", "--domain", "edge"); r.Code != 0 {
				return errors.New(r.String())
			}
			return nil
		})
		before = running(t, m.Site, "hello", 2)
		m.move("adopt", "--domain", "edge").Want(t, 0, "2 tasks ran on") // a second time
		m.same(before, running(t, m.fleet.Site, "hello", 2))
	})
}

// The store of a node from before its move to a fleet does not command the node any more, also if a server with that
// store is the agent's only one. A token of other servers does not let the node join.
func TestFormerOwnerCommandsNothing(t *testing.T) {
	t.Parallel()
	m, before := newMovable(t, harness.Process)
	token := m.joinToken()
	foreign := token[:len(token)-8] + strings.Repeat("0", 8)
	err := m.host.PrepareHandover(t.Context(), api.HostPrepareRequest{Servers: m.fleet.URLs(), JoinToken: foreign})
	if client.StatusOf(err) != 409 {
		t.Errorf("a token of another authority: got %v, want a refusal", err)
	}
	m.phase(api.HandoverOwn)

	m.node.Terminate()
	former := filepath.Join(m.Dir, "former")
	m.must(exec.Command("cp", "-a", filepath.Join(m.AgentDir, "server"), former).Run())
	m.node = m.Standalone()
	m.settled("adopt")
	m.move("adopt").Want(t, 0, "2 tasks ran on")
	m.node.Kill()

	socket := filepath.Join(m.Dir, "former.sock")
	server := m.Start("server", "--data-dir", former, "--listen", "unix://"+socket)
	agent := m.Start("agent", "--data-dir", m.AgentDir, "--server", "unix://"+socket, "--name", harness.NodeName,
		"--executor", harness.Process, "--process-isolation", "none", "--host-path", "/")
	old, err := client.New(client.Config{Addr: "unix://" + socket})
	m.must(err)
	t.Cleanup(old.Close)
	deleted := false
	m.Eventually(soon, func() error {
		if !deleted { // its leader would stop the tasks
			if err := old.DeleteService(t.Context(), cluster.DefaultCluster, "hello", client.Condition{}); err != nil {
				return err
			}
			deleted = true
		}
		s, err := old.Status(t.Context())
		if err == nil && s.Recovery == nil {
			err = errors.New("the former owner does not know that its store is old")
		}
		return err
	})
	agent.Kill()
	server.Kill()
	m.node = m.StartStandalone()
	m.phase(api.HandoverServers)
	m.fleet.NodeIs(harness.NodeName, cluster.NodeReady)
	m.same(before, running(t, m.fleet.Site, "hello", 2))
}

// A node that `berth agent` runs drives itself after `berth standalone` took its data directory: first as the agent of
// the same servers, and after its release with a server of its own.
func TestNodeOfAnAgentIsReleased(t *testing.T) {
	t.Parallel()
	f := harness.NewFleet(t)
	f.Start(harness.Loopback(1)...)
	agent := f.Agent(harness.Host{Name: "n1", Address: "127.0.0.1"})
	f.Berth("run", f.Write("hello.yaml", fmt.Sprintf(hello, 1, 1)+fmt.Sprintf(
		"on_disconnect: wait\nplacement: {constraints: [{attribute: node.name, value: %s}]}\n", agent.Name))).
		Want(t, 0, "1/1")
	before := running(t, f.Site, "hello", 1)
	host := filepath.Join(agent.Dir, "host.sock")
	f.Berth("node", "release", agent.Name, "--socket", host).Want(t, 2, "only `berth standalone` can")
	agent.Terminate()
	socket := filepath.Join(f.Dir, "own.sock")
	f.Site.Start("standalone", "--data-dir", agent.Dir, "--socket", socket, "--name", agent.Name, "--executor",
		harness.Process, "--process-isolation", "none", "--default-permissions", "all")
	f.Eventually(soon, func() error {
		if r := f.Berth("node", "release", agent.Name, "--socket", host, "--dry-run"); r.Code != 0 {
			return errors.New(r.String())
		}
		return nil
	})
	f.Berth("node", "release", agent.Name, "--socket", host).Want(t, 0, "drives itself")
	own, err := client.New(client.Config{Addr: "unix://" + socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Close)
	f.Eventually(soon, func() error {
		page, err := own.Tasks(t.Context(), client.TaskFilter{}, client.ListOptions{})
		if err == nil && (len(page.Items) != 1 || page.Items[0].UUID != before[0].UUID ||
			page.Items[0].State != cluster.StateRunning) {
			err = fmt.Errorf("the own server has %+v", page.Items)
		}
		if err == nil {
			samePids(t, before, page.Items)
		}
		return err
	})
	f.Berth("--addr", "unix://"+socket, "delete", "service/hello").Want(t, 0)
	f.Eventually(soon, func() error {
		page, err := own.Services(t.Context(), cluster.DefaultCluster, client.ListOptions{})
		if err == nil && len(page.Items) > 0 {
			err = errors.New("the service is still being deleted")
		}
		return err
	})
}

// must fails the test at an error.
func (m *movable) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// joinToken returns a join token for the node.
func (m *movable) joinToken() string {
	m.t.Helper()
	v, err := m.fleet.Client().CreateToken(m.t.Context(), api.TokenRequest{
		Purpose: api.TokenJoin, Role: api.RoleNode, For: harness.NodeName,
	})
	m.must(err)
	return v.Token
}

// settled waits until nothing is in the way of a move.
func (m *movable) settled(verb string) {
	m.t.Helper()
	m.Eventually(soon, func() error {
		if r := m.move(verb, "--dry-run"); r.Code != 0 {
			return errors.New(r.String())
		}
		return nil
	})
}

package e2e_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/freeport"
	"github.com/berthd/berth/test/harness"
)

// TestReservedPorts: a task that requests a port of the operator's reserved range waits, with the port in the reason,
// until the node reserves another range.
func TestReservedPorts(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	s.Server()
	agent := s.Agent("--reserved-ports", "29881,29890-29899")
	s.Berth("status", "node/"+harness.NodeName).Want(t, 0, "reserved ports", "29881,29890-29899")
	fixed := s.Write("fixed.yaml", `
kind: TaskDefinition
name: fixed
version: 1
ports: [{name: http, port: 29895}]
containers: [{name: main, command: [/bin/sleep, "1000"], resources: {cpu: 10m, memory: 16MiB}}]
grace: 1s
---
kind: Service
name: fixed
definition: fixed@1
count: 1
`)
	s.Berth("run", "--detach", fixed).Want(t, 0)
	s.Eventually(soon, func() error {
		if out := s.Berth("explain", "fixed.1.0").Stdout; !strings.Contains(out, "port 29895 reserved") {
			return errors.New("no reason with the port: " + out)
		}
		return nil
	})
	agent.Stop()
	s.Agent("--reserved-ports", "29881")
	running(t, s, "fixed", 1)

	// The operator reserves the port of the running task: the task keeps it, and its next attempt waits.
	reserve := s.Berth("node", "reserve-ports", harness.NodeName, "29890-29899,443")
	reserve.Want(t, 0, "has the ports 443,29890-29899 reserved by an operator")
	if want := "port 29895 stays with fixed.1.0 until that task leaves " + harness.NodeName; !strings.Contains(
		reserve.Stderr, want) {
		t.Errorf("want %q in %s", want, reserve.Stderr)
	}
	s.Berth("node", "status", harness.NodeName).Want(t, 0, "29881, by its agent", "443,29890-29899, by an operator")
	s.Berth("events", "--tail", "-1").Want(t, 0, "ports 443,29890-29899 reserved")
	running(t, s, "fixed", 1)
	s.Berth("restart", "fixed", "--detach").Want(t, 0)
	s.Eventually(soon, func() error {
		if out := s.Berth("explain", "fixed.2.0").Stdout; !strings.Contains(out, "port 29895 reserved") {
			return errors.New("no reason with the port: " + out)
		}
		return nil
	})
	s.Berth("node", "unreserve-ports", harness.NodeName, "--all").Want(t, 0, "has no ports reserved by an operator")
	running(t, s, "fixed", 1)
}

// TestPortInUseIsNamed: the agent rejects a task whose port another program uses, over TCP or UDP. All views name the
// pid and the name of that program, and the task starts once the program has ended.
func TestPortInUseIsNamed(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	s.Dev()
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimSpace(string(comm))
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for job, at := range map[string]net.Addr{"tcp": taken.Addr(), "udp": packets.LocalAddr()} {
		_, port, err := net.SplitHostPort(at.String())
		if err != nil {
			t.Fatal(err)
		}
		s.Berth("run", "--detach", s.Write(job+".yaml", fmt.Sprintf(`
kind: TaskDefinition
name: %[1]s
version: 1
ports: [{name: http, port: %[2]s}]
containers: [{name: main, command: [/bin/sleep, "1000"], resources: {cpu: 10m, memory: 16MiB}}]
grace: 1s
---
kind: Service
name: %[1]s
definition: %[1]s@1
count: 1
`, job, port))).Want(t, 0)
		sentence := fmt.Sprintf("port %s is used by pid %d (%s), which listens at %s over %s; the task needs it for its "+
			"port http", port, os.Getpid(), name, at, strings.ToUpper(job))
		task := job + ".1.0"
		for _, view := range [][]string{{"explain", task}, {"status", task}, {"events", "--tail", "-1"}} {
			s.Eventually(soon, func() error {
				r := s.Berth(view...)
				if words := strings.Join(strings.Fields(r.Stdout), " "); !strings.Contains(words, sentence) {
					return fmt.Errorf("want %q in:\n%v", sentence, r)
				}
				return nil
			})
		}
	}
	if err := errors.Join(taken.Close(), packets.Close()); err != nil {
		t.Fatal(err)
	}
	running(t, s, "tcp", 1)
	running(t, s, "udp", 1)
}

// TestPortOfAnotherTaskIsNamed: a task listens on a port that its definition does not name. The rejection of a task
// that needs the port names the other task.
func TestPortOfAnotherTaskIsNamed(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	s.Dev()
	address, err := freeport.Address(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	service := func(name, command, ports string) string {
		return s.Write(name+".yaml", fmt.Sprintf(`
kind: TaskDefinition
name: %[1]s
version: 1
ports: [%[3]s]
containers: [{name: main, command: [/bin/sh, -c, "%[2]s"], resources: {cpu: 10m, memory: 16MiB}}]
grace: 1s
---
kind: Service
name: %[1]s
definition: %[1]s@1
count: 1
`, name, command, ports))
	}
	s.Berth("run", service("hidden", "/bin/busybox httpd -f -p 127.0.0.1:"+port+" & wait", "")).Want(t, 0)
	s.Eventually(soon, func() error { // the program has begun, and its child may not have
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err == nil {
			err = c.Close()
		}
		return err
	})
	s.Berth("run", "--detach", service("open", "sleep 1000", "{name: http, port: "+port+"}")).Want(t, 0)
	s.Eventually(soon, func() error {
		r := s.Berth("explain", "open.1.0")
		words := strings.Join(strings.Fields(r.Stdout), " ")
		if !strings.Contains(words, "of the task hidden.1.0, which") {
			return fmt.Errorf("the task is not named: %v", r)
		}
		return nil
	})
}

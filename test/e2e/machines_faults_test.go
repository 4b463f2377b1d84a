//go:build prove

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/bootstrap"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/setup"
	"github.com/berthd/berth/internal/ssh"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
	"github.com/berthd/berth/test/machines"
)

// TestManyMachines adds several machines together, of which one does not answer. The others become nodes, and run a
// task each of a service that waits for them. BERTH_TEST_MACHINES is the number of good ones. It prints how long it
// takes from the command to the first healthy task of the first and of the last machine.
func TestManyMachines(t *testing.T) {
	t.Parallel()
	s := newMachineSite(t)
	count := int(testkit.Setting(t, "BERTH_TEST_MACHINES", 3))
	lines := []string{"# good ones"}
	known := ""
	for i := range count {
		m := machines.Start(t, s.lab.Add(fmt.Sprintf("m%d", i+1)), s.key)
		lines = append(lines, "root@"+m.Address)
		known += m.Address + " " + m.HostKeyLine + "\n"
	}
	s.Write("known_hosts", known)
	silent := s.lab.Add("silent")
	lines = append(lines, "silent=root@"+silent.Address+" # nobody listens")
	profile := s.profile(1, 512, "64MiB")
	s.Berth("run", "--detach", s.Write("greeter.yaml", fmt.Sprintf(greeterService, count))).Want(t, 0)
	begun := time.Now()
	r := s.add("-f", s.Write("machines.txt", strings.Join(lines, "\n")), "--profile", profile, "-o", "json")
	r.Want(t, 1, fmt.Sprintf("1 of %d machines failed", count+1))
	var all []struct{ Name, Result, Step, Error, Hint string }
	if err := json.Unmarshal([]byte(r.Stdout), &all); err != nil {
		t.Fatalf("%v\n%v", err, r)
	}
	for i, m := range all {
		switch {
		case i < count && (m.Name != fmt.Sprintf("m%d", i+1) || m.Result != "added"):
			t.Errorf("machine %d ended as %+v", i+1, m)
		case i == count && (m.Result != "failed" || m.Step != "connect" || m.Hint == ""):
			t.Errorf("the silent machine ended as %+v", m)
		}
	}
	for i := range count {
		s.NodeIs(fmt.Sprintf("m%d", i+1), cluster.NodeReady)
	}
	var times []time.Time
	s.Eventually(time.Minute, func() (err error) {
		if times, err = s.firstHealthy(); err == nil && len(times) < count {
			err = fmt.Errorf("%d of %d machines had a healthy task", len(times), count)
		}
		return err
	})
	load, _ := os.ReadFile("/proc/loadavg")
	after := func(at time.Time) time.Duration { return at.Sub(begun).Round(10 * time.Millisecond) }
	t.Logf("%d machines in %v; first healthy task of the first after %v, of the last after %v; load %s:\n%s", count,
		r.Took.Round(10*time.Millisecond), after(times[0]), after(times[count-1]), load, r.Stderr)
	s.Berth("down", filepath.Join(s.Dir, "greeter.yaml")).Want(t, 0)
}

// cutter forwards connections to a machine, and cuts them when it is told.
type cutter struct {
	listener net.Listener
	dial     func() (net.Conn, error)

	mu    sync.Mutex
	conns map[net.Conn]bool
	cuts  int
}

func (c *cutter) serve() {
	for {
		in, err := c.listener.Accept()
		if err != nil {
			return
		}
		out, err := c.dial()
		if err != nil {
			_ = in.Close()
			continue
		}
		c.mu.Lock()
		c.conns[in], c.conns[out] = true, true
		c.mu.Unlock()
		for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
			go func() {
				_, _ = io.Copy(pair[0], pair[1])
				_ = pair[0].Close()
			}()
		}
	}
}

// cut closes all connections.
func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.conns) > 0 {
		c.cuts++
	}
	for conn := range c.conns {
		_ = conn.Close()
		delete(c.conns, conn)
	}
}

// fleetControl is bootstrap.Control over commands of a fleet.
type fleetControl struct{ s *machineSite }

func (c fleetControl) JoinToken(_ context.Context, node string) (string, error) {
	file := c.s.JoinToken("node", "--for", node)
	b, err := os.ReadFile(file)
	return strings.TrimSpace(string(b)), err
}

func (c fleetControl) Session(ctx context.Context, node string) (uint64, error) {
	v, err := c.s.Client().Node(ctx, node)
	return v.Session, err
}

func (c fleetControl) Record(ctx context.Context, node string, s cluster.HostSetup, dial string) (uint64, error) {
	v, err := c.s.Client().SetupNode(ctx, node, api.NodeSetupRequest{Setup: s, Dial: dial}, client.Condition{})
	return v.Session, err
}

func (c fleetControl) WaitReady(_ context.Context, node string, _ uint64) error {
	c.s.NodeIs(node, cluster.NodeReady)
	return nil
}

// oneProgram is the program of the test, for every architecture.
type oneProgram struct{ *bootstrap.Program }

func (p oneProgram) For(string) (*bootstrap.Program, error) { return p.Program, nil }

// TestNodeAddOverBrokenLinks cuts the connection in each step of an addition and of an upgrade, soon after its
// beginning and again. Both end well, and the machine has joined once.
func TestNodeAddOverBrokenLinks(t *testing.T) {
	t.Parallel()
	s := newMachineSite(t)
	m := machines.Start(t, s.lab.Add("m1"), s.key)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	c := &cutter{listener: listener, conns: map[net.Conn]bool{}}
	c.dial = func() (net.Conn, error) {
		return m.Dial(t.Context(), "tcp", net.JoinHostPort(m.Address, "22"))
	}
	go c.serve()
	program, err := bootstrap.OpenProgram(harness.Binary())
	if err != nil {
		t.Fatal(err)
	}
	auth := &ssh.Auth{Files: []string{s.key.File}}
	if err := auth.Load(); err != nil {
		t.Fatal(err)
	}
	var profile cluster.Profile
	if err := json.Unmarshal([]byte(`{"name": "worker", "version": 1, "files": [{"path": "/etc/a", "content": "a"},
		{"path": "/etc/b", "content": "b"}], "requires": {"clock_skew": "1h"}, "agent": {"executor": "process",
		"flags": ["--process-isolation=none", "--dns-listen=off"]}}`), &profile); err != nil {
		t.Fatal(err)
	}
	// another program left a part, which the first try finds out
	m.Run("mkdir -p /root/.cache/berth-setup; echo damage >/root/.cache/berth-setup/berth-" + program.Version() + ".part")
	cut := map[string]int{}
	var timers sync.WaitGroup
	config := bootstrap.Config{
		Servers: s.URLs(), Profile: &profile, Control: fleetControl{s}, Binary: oneProgram{program},
		ReadyLimit: time.Minute, Log: slog.New(slog.DiscardHandler),
		Progress: func(e bootstrap.Event) {
			if e.Ended {
				return
			}
			for n := range 2 {
				cut[e.Step]++
				timers.Go(func() {
					testkit.Pause(t.Context(), time.Duration(1+60*n)*time.Millisecond)
					c.cut()
				})
			}
		},
	}
	address := listener.Addr().(*net.TCPAddr)
	machine := func() bootstrap.Machine {
		return bootstrap.Machine{Name: "m1", Conn: ssh.New(ssh.Config{
			Target: ssh.Target{User: "root", Host: "127.0.0.1", Port: address.Port}, Auth: auth,
			Keys: &ssh.HostKeys{Pinned: []string{m.HostKey}},
		})}
	}
	r := bootstrap.Add(t.Context(), config, machine())
	timers.Wait()
	if r.Err != nil {
		t.Fatalf("step %s: %v", r.Step, r.Err)
	}
	m.Run("test $(cat /etc/a /etc/b) = ab && test ! -e /var/lib/berth-setup/join-token")
	s.NodeIs("m1", cluster.NodeReady)

	second := (&upgradeSite{machineSite: s}).newVersion("second")
	if program, err = bootstrap.OpenProgram(second); err != nil {
		t.Fatal(err)
	}
	config.Binary = oneProgram{program}
	r = bootstrap.Upgrade(t.Context(), bootstrap.UpgradeConfig{
		Config: config, Gate: openGate{}, Confirmation: testkit.Scaled(time.Minute),
	}, machine())
	timers.Wait()
	if r.Err != nil {
		t.Fatalf("step %s: %v", r.Step, r.Err)
	}
	s.NodeIs("m1", cluster.NodeReady)
	m.Run("test $(readlink " + setup.BinaryLink + ") = " + setup.VersionsDir + "/" + program.Version() + "/berth")
	m.Run("test ! -e /var/lib/berth-setup/upgrade.json")
	steps := len(bootstrap.Steps()) - 1 // all but that of an upgrade that failed
	if len(cut) != steps || c.cuts < steps {
		t.Errorf("%d connections were cut in the steps %v", c.cuts, cut)
	}
}

// openGate lets every node pass.
type openGate struct{}

func (openGate) Begin(context.Context, string) (uint64, error) { return 0, nil }
func (openGate) Pass(context.Context, string) error            { return nil }

// greeterService is a service with one task on each machine of workerProfile. %d is the number of the tasks.
const greeterService = `
kind: Service
name: greeter
count: %d
template:
  containers:
    - name: main
      command:
        - perl
        - -MIO::Socket::INET
        - -e
        - |
          $s = IO::Socket::INET->new(LocalPort => $ENV{PORT_HTTP}, Listen => 9, ReuseAddr => 1) or die;
          while ($c = $s->accept) { sysread $c, $_, 4096; print $c "HTTP/1.0 200 OK\r\n\r\n"; close $c }
      resources: {cpu: 10m, memory: 32MiB}
  ports: [{name: http}]
  checks: [{name: up, type: http, path: /, interval: 500ms}]
  min_healthy_time: 100ms
placement: {anti_affinity: require}
`

// firstHealthy returns when the service greeter had its first healthy task on each node, by the server's clock and in
// their order.
func (s *machineSite) firstHealthy() ([]time.Time, error) {
	page, err := s.Client().Events(s.t.Context(), client.EventOptions{
		Types: []string{"task.healthy"}, EventFilter: client.EventFilter{Service: "greeter"},
	}, client.ListOptions{Limit: 1000})
	first := map[string]time.Time{}
	for _, e := range page.Items {
		if at, seen := first[e.Node]; !seen || e.At.Before(at) {
			first[e.Node] = e.At
		}
	}
	return slices.SortedFunc(maps.Values(first), time.Time.Compare), err
}

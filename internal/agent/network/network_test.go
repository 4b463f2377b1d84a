package network_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/agent/network"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/netlab"
)

// soon is a limit for slow machines.
const soon = 10 * time.Second

const (
	one = "11111111-aaaa-4aaa-8aaa-000000000001"
	two = "22222222-aaaa-4aaa-8aaa-000000000002"
)

func needCNI(t *testing.T) {
	t.Helper()
	testkit.NeedRoot(t)
	testkit.NeedCommand(t, "nft", "ip")
	if _, err := os.Stat("/usr/lib/cni/bridge"); err != nil {
		testkit.Skip(t, "needs CNI's plugins in /usr/lib/cni")
	}
}

// node is a host of a lab whose spaces are tested.
type node struct {
	t    *testing.T
	host *netlab.Host
	dir  string
	*network.Spaces
}

func newNode(t *testing.T, h *netlab.Host) *node {
	t.Helper()
	n := &node{t: t, host: h, dir: t.TempDir()}
	t.Cleanup(func() { // remains of a failed test
		all, _ := filepath.Glob(filepath.Join(n.dir, "tasks/*/ns"))
		for _, file := range all {
			_ = unix.Unmount(file, unix.MNT_DETACH)
		}
	})
	n.reopen()
	return n
}

// reopen creates the spaces of the agent's next run.
func (n *node) reopen() {
	n.t.Helper()
	if n.Spaces != nil {
		_ = n.Close()
	}
	n.Spaces = network.New(network.Config{Dir: n.dir})
	n.do(func(ctx context.Context) error {
		for _, f := range n.Facts(ctx) {
			if f.Lacks != "" {
				n.t.Errorf("network %s lacks %s", f.Mode, f.Lacks)
			}
		}
		return nil
	})
}

// do calls a function on the host.
func (n *node) do(f func(ctx context.Context) error) {
	n.t.Helper()
	if err := n.host.Do(func() error { return f(n.t.Context()) }); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) join(uuid string, mode cluster.NetworkMode, ports ...network.Port) (space string) {
	n.t.Helper()
	n.do(func(ctx context.Context) (err error) {
		space, err = n.Join(ctx, network.Task{UUID: uuid, Mode: mode, Ports: ports})
		return err
	})
	return space
}

func (n *node) leave(uuid string) {
	n.t.Helper()
	n.do(func(ctx context.Context) error { return n.Leave(ctx, uuid) })
}

func (n *node) sweep(known ...string) {
	n.t.Helper()
	n.do(func(ctx context.Context) error {
		return n.Sweep(ctx, func(uuid string) bool { return slices.Contains(known, uuid) })
	})
}

// content returns the content of a namespace: the packet filter's rules and the links.
func (n *node) content() string {
	n.t.Helper()
	var all strings.Builder
	n.do(func(context.Context) error {
		for _, c := range [][]string{{"nft", "-s", "list", "ruleset"}, {"ip", "-brief", "link"}, {"ip", "route"}} {
			out, err := exec.Command(c[0], c[1:]...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%s: %w: %s", c, err, out)
			}
			all.Write(out)
		}
		return nil
	})
	return all.String()
}

// wantAsBefore fails the test if anything is left.
func (n *node) wantAsBefore(before string) {
	n.t.Helper()
	testkit.Eventually(n.t, soon, func() error { // the kernel removes links after their namespaces
		if now := n.content(); now != before {
			return fmt.Errorf("the node has\n%s\nand before\n%s", now, before)
		}
		return nil
	})
	for _, pattern := range []string{"tasks/*", "ipam/berth/*.*.*.*", "cache/results/*"} {
		left, _ := filepath.Glob(filepath.Join(n.dir, pattern))
		for _, l := range left {
			if !strings.HasSuffix(l, "last_reserved_ip.0") {
				n.t.Errorf("left: %s", l)
			}
		}
	}
	if mounts, _ := os.ReadFile("/proc/self/mounts"); strings.Contains(string(mounts), n.dir) {
		n.t.Errorf("mounts are left in %s", n.dir)
	}
}

// within calls do on a thread in a namespace.
func within(space string, do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked
		done <- func() error {
			f, err := os.Open(space)
			if err != nil {
				return err
			}
			defer f.Close()
			if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			return do()
		}()
	}()
	return <-done
}

// serve sends every client a word and the client's address.
func serve(t *testing.T, space, address, word string) {
	t.Helper()
	var l net.Listener
	if err := within(space, func() (err error) {
		l, err = net.Listen("tcp4", address)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
			_, _ = io.WriteString(c, word+" "+host)
			_ = c.Close()
		}
	}()
}

// ask returns the answer at an address, asked from a namespace.
func ask(space, address string) (string, error) {
	var said []byte
	err := within(space, func() error {
		c, err := net.DialTimeout("tcp4", address, 3*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(3 * time.Second))
		said, err = io.ReadAll(c)
		return err
	})
	return string(said), err
}

func spaceOf(h *netlab.Host) string { return "/var/run/netns/" + h.Space }

// TestPublishedPorts: two tasks listen on the same number, and every client reaches each by its own number on the node.
func TestPublishedPorts(t *testing.T) {
	needCNI(t)
	t.Parallel()
	lab := netlab.New(t)
	machine, other := lab.Add("node"), lab.Add("other")
	n := newNode(t, machine)
	before := n.content()
	first := n.join(one, cluster.NetworkBridge, network.Port{Node: 30001, Inside: 80})
	second := n.join(two, cluster.NetworkBridge, network.Port{Node: 30002, Inside: 80},
		network.Port{Node: 9000, Inside: 9000})
	serve(t, first, ":80", "one")
	serve(t, second, ":80", "two")
	serve(t, second, ":9000", "admin")
	serve(t, spaceOf(other), ":700", "other")
	for name, c := range map[string]struct{ from, to, want string }{
		"another machine reaches the first": {
			spaceOf(other), machine.Address + ":30001",
			"one " + other.Address,
		},
		"another machine reaches the second": {
			spaceOf(other), machine.Address + ":30002",
			"two " + other.Address,
		},
		"another machine reaches its other port": {
			spaceOf(other), machine.Address + ":9000",
			"admin " + other.Address,
		},
		"the node reaches it at its address": {
			spaceOf(machine), machine.Address + ":30001",
			"one " + machine.Address,
		},
		"the node reaches it at its loopback":         {spaceOf(machine), "127.0.0.1:30002", "two 10.213.0.1"},
		"a task reaches another at the node":          {first, machine.Address + ":30002", "two 10.213.0.1"},
		"a task reaches itself at the node":           {first, machine.Address + ":30001", "one 10.213.0.1"},
		"a task reaches itself at its own loopback":   {first, "127.0.0.1:80", "one 127.0.0.1"},
		"a task reaches others in the name of a node": {second, other.Address + ":700", "other " + machine.Address},
	} {
		if got, err := ask(c.from, c.to); err != nil || got != c.want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, c.want)
		}
	}
	if _, err := ask(spaceOf(other), machine.Address+":80"); err == nil {
		t.Error("the number inside is reached at the node, where no task published it")
	}
	// A later Join finds everything in place and makes nothing twice.
	content := n.content()
	n.reopen()
	n.sweep(one, two)
	if again := n.join(one, cluster.NetworkBridge, network.Port{Node: 30001, Inside: 80}); again != first {
		t.Errorf("joined again at %s, want %s", again, first)
	}
	if now := n.content(); now != content {
		t.Errorf("after a restart the node has\n%s\nwant\n%s", now, content)
	}
	if got, err := ask(spaceOf(other), machine.Address+":30001"); err != nil || got != "one "+other.Address {
		t.Errorf("after a restart: got %q, %v", got, err)
	}
	// Another program removes the rules: the next sweep restores them.
	n.do(func(context.Context) error { return exec.Command("nft", "flush", "ruleset").Run() })
	n.sweep(one, two)
	if got, err := ask(spaceOf(other), machine.Address+":30002"); err != nil || got != "two "+other.Address {
		t.Errorf("after the rules were flushed: got %q, %v", got, err)
	}
	n.do(func(context.Context) error { // the flush removed the lab's own rules, too
		return exec.Command("nft", "add table ip lab; add chain ip lab cut { type filter hook input priority 0; }; "+
			"add chain ip lab slow { type nat hook prerouting priority -100; }").Run()
	})
	n.leave(one)
	if _, err := ask(spaceOf(other), machine.Address+":30001"); err == nil {
		t.Error("the port of a task that left is reached")
	}
	n.leave(one) // repeated
	n.leave(two)
	n.wantAsBefore(before)
}

// TestNone: a namespace without connections, plugins or rules.
func TestNone(t *testing.T) {
	testkit.NeedRoot(t)
	t.Parallel()
	n := newNode(t, netlab.New(t).Add("node"))
	before := n.content()
	space := n.join(one, cluster.NetworkNone)
	serve(t, space, "127.0.0.1:80", "own")
	if got, err := ask(space, "127.0.0.1:80"); err != nil || got != "own 127.0.0.1" {
		t.Errorf("the loopback: got %q, %v", got, err)
	}
	if err := within(space, func() error {
		links, err := net.Interfaces()
		if err == nil && len(links) != 1 {
			err = fmt.Errorf("the links are %v, want the loopback alone", links)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	n.leave(one)
	n.wantAsBefore(before)
}

// TestDeathAtAnyMoment: the next agent completes an unfinished network of an attempt that continues, and removes one
// whose attempt is gone.
func TestDeathAtAnyMoment(t *testing.T) {
	needCNI(t)
	t.Parallel()
	machine := netlab.New(t).Add("node")
	edit := func(n *node, old, replacement string) {
		t.Helper()
		name := filepath.Join(n.dir, "tasks", one, "record.json")
		b, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(b), old) {
			t.Fatalf("the record is %s, %v", b, err)
		}
		if err := os.WriteFile(name, []byte(strings.Replace(string(b), old, replacement, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	port := network.Port{Node: 30001, Inside: 80}
	for name, left := range map[string]func(n *node){
		"a folder without a record": func(n *node) {
			if err := os.MkdirAll(filepath.Join(n.dir, "tasks", one), 0o700); err != nil {
				t.Fatal(err)
			}
		},
		"half a record": func(n *node) {
			n.join(one, cluster.NetworkBridge, port)
			if err := os.WriteFile(filepath.Join(n.dir, "tasks", one, "record.json"), []byte(`{"uu`),
				0o600); err != nil {
				t.Fatal(err)
			}
		},
		"attached, and not noted": func(n *node) {
			n.join(one, cluster.NetworkBridge, port)
			edit(n, `,"made":true`, "")
		},
		"noted, and not published": func(n *node) {
			n.join(one, cluster.NetworkBridge, port)
			n.do(func(context.Context) error {
				return exec.Command("sh", "-c", "nft delete table ip $(nft list tables | grep -o 'berth-.*')").Run()
			})
		},
		"the namespace is gone, as after a start of the machine": func(n *node) {
			file := n.join(one, cluster.NetworkBridge, port)
			if err := unix.Unmount(file, unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
		},
		"the record is gone, and the address is not": func(n *node) {
			file := n.join(one, cluster.NetworkBridge, port)
			if err := errors.Join(unix.Unmount(file, unix.MNT_DETACH), os.RemoveAll(filepath.Dir(file))); err != nil {
				t.Fatal(err)
			}
		},
		"all of it": func(n *node) { n.join(one, cluster.NetworkBridge, port) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, machine)
			before := n.content()
			left(n)
			n.reopen()
			n.sweep()
			n.wantAsBefore(before)

			left(n)
			n.reopen()
			n.sweep(one)
			space := n.join(one, cluster.NetworkBridge, port)
			serve(t, space, ":80", "one")
			if got, err := ask(spaceOf(machine), machine.Address+":30001"); err != nil ||
				got != "one "+machine.Address {
				t.Errorf("joined again: got %q, %v", got, err)
			}
			n.leave(one)
			n.wantAsBefore(before)
		})
	}
}

// TestSpaceInUse: an attempt whose record was lost continues, and so does its network, until nothing runs there.
func TestSpaceInUse(t *testing.T) {
	testkit.NeedRoot(t)
	testkit.NeedCommand(t, "nsenter", "sleep")
	t.Parallel()
	n := newNode(t, netlab.New(t).Add("node"))
	before := n.content()
	space := n.join(one, cluster.NetworkNone)
	program := exec.Command("nsenter", "--net="+space, "sleep", "1000")
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() { _ = program.Process.Kill(); _ = program.Wait() })
	t.Cleanup(end)
	testkit.Eventually(t, soon, func() error {
		a, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", program.Process.Pid))
		b, err2 := os.Stat(space)
		if err != nil || err2 != nil || !os.SameFile(a, b) {
			return fmt.Errorf("it has not entered: %w", errors.Join(err, err2))
		}
		return nil
	})
	n.reopen()
	n.sweep()
	if _, err := os.Stat(space); err != nil {
		t.Errorf("the namespace of a program went: %v", err)
	}
	end()
	n.sweep()
	n.wantAsBefore(before)
}

// TestConcurrentAttempts: concurrent attempts do not disturb each other.
func TestConcurrentAttempts(t *testing.T) {
	needCNI(t)
	t.Parallel()
	machine := netlab.New(t).Add("node")
	n := newNode(t, machine)
	before := n.content()
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			task := network.Task{
				UUID: fmt.Sprintf("many-%d", i), Mode: cluster.NetworkBridge,
				Ports: []network.Port{{Node: 31000 + i, Inside: 80}},
			}
			err := machine.Do(func() error {
				if _, err := n.Join(t.Context(), task); err != nil {
					return err
				}
				if i%3 == 0 {
					return n.Leave(t.Context(), task.UUID)
				}
				return nil
			})
			if err != nil {
				t.Errorf("%s: %v", task.UUID, err)
			}
		})
	}
	all.Wait()
	for i := range 12 {
		if i%3 == 0 {
			continue
		}
		file := filepath.Join(n.dir, "tasks", fmt.Sprintf("many-%d", i), "ns")
		serve(t, file, ":80", fmt.Sprint(i))
		if got, err := ask(spaceOf(machine), fmt.Sprintf("127.0.0.1:%d", 31000+i)); err != nil ||
			got != fmt.Sprint(i)+" 10.213.0.1" {
			t.Errorf("task %d: got %q, %v", i, got, err)
		}
	}
	n.sweep()
	n.wantAsBefore(before)
}

// Arguments of another process, which joins like an agent that is killed.
const (
	dirVariable     = "BERTH_TEST_JOIN_DIR"
	pluginsVariable = "BERTH_TEST_JOIN_PLUGINS"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(dirVariable); dir != "" {
		os.Exit(joinAndLeave(dir, os.Getenv(pluginsVariable)))
	}
	os.Exit(m.Run())
}

// joinAndLeave is the short run of an agent with one task.
func joinAndLeave(dir, plugins string) int {
	s := network.New(network.Config{Dir: dir, Plugins: filepath.SplitList(plugins)})
	ctx := context.Background()
	s.Facts(ctx)
	_, err := s.Join(ctx, network.Task{
		UUID: one, Mode: cluster.NetworkBridge,
		Ports: []network.Port{{Node: 30001, Inside: 80}},
	})
	if err == nil {
		err = s.Leave(ctx, one)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// other starts another process that joins and leaves on the host.
func (n *node) other(plugins string) *exec.Cmd {
	n.t.Helper()
	words := []string{"nsenter", "--net=" + spaceOf(n.host), os.Args[0]}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), dirVariable+"="+n.dir, pluginsVariable+"="+plugins)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	return cmd
}

// TestKillNine: killed at any moment of making or removing a network, an agent leaves nothing that the next one does
// not find.
func TestKillNine(t *testing.T) {
	needCNI(t)
	testkit.NeedCommand(t, "nsenter")
	t.Parallel()
	n := newNode(t, netlab.New(t).Add("node"))
	before := n.content()
	_ = n.Close()
	whole := time.Now()
	if err := n.other("/usr/lib/cni").Wait(); err != nil {
		t.Fatalf("an agent that is not killed: %v", err)
	}
	span := time.Since(whole)
	for range 20 {
		cmd := n.other("/usr/lib/cni")
		testkit.Pause(t.Context(), time.Duration(rand.Int64N(int64(span))))
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		n.reopen()
		n.sweep()
		n.wantAsBefore(before)
		_ = n.Close()
	}
}

// TestPluginOutlivesTheAgent: the next agent waits for a program that a dead agent called.
func TestPluginOutlivesTheAgent(t *testing.T) {
	needCNI(t)
	testkit.NeedCommand(t, "nsenter")
	t.Parallel()
	n := newNode(t, netlab.New(t).Add("node"))
	before := n.content()
	_ = n.Close()
	plugins := t.TempDir()
	called := filepath.Join(plugins, "called")
	slow := "#!/bin/sh\ntouch " + called + "\nsleep 1\nrm " + called + "\nexec /usr/lib/cni/bridge\n"
	if err := errors.Join(os.WriteFile(filepath.Join(plugins, "bridge"), []byte(slow), 0o700),
		os.Symlink("/usr/lib/cni/host-local", filepath.Join(plugins, "host-local"))); err != nil {
		t.Fatal(err)
	}
	cmd := n.other(plugins)
	testkit.Eventually(t, soon, func() error {
		_, err := os.Stat(called)
		return err
	})
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	n.reopen()
	if _, err := os.Stat(called); err == nil {
		t.Error("the next agent did not wait for the plugin of the last")
	}
	n.sweep()
	n.wantAsBefore(before)
}

func TestFactsSayWhatLacks(t *testing.T) {
	testkit.NeedRoot(t)
	testkit.NeedCommand(t, "nft", "ip")
	t.Parallel()
	machine := netlab.New(t).Add("node")
	for name, c := range map[string]struct {
		config network.Config
		want   string
	}{
		"no plugins": {
			network.Config{Plugins: []string{"/nowhere"}},
			"CNI plugins bridge and host-local are missing in /nowhere; install them (apt-get install " +
				"containernetworking-plugins)",
		},
		"a route overlaps": {
			network.Config{Subnet: netip.MustParsePrefix("10.77.0.0/16")},
			"the subnet 10.77.0.0/16 for tasks overlaps the node's route to 10.77.0.0/24 of eth0; give the " +
				"agent another with --bridge-subnet",
		},
	} {
		c.config.Dir = t.TempDir()
		s := network.New(c.config)
		err := machine.Do(func() error {
			facts := s.Facts(t.Context())
			if bridge := cluster.LacksNetwork(facts, cluster.NetworkBridge); !strings.Contains(bridge, c.want) {
				t.Errorf("%s: bridge lacks %q, want %q", name, bridge, c.want)
			}
			if none := cluster.LacksNetwork(facts, cluster.NetworkNone); none != "" {
				t.Errorf("%s: none lacks %q", name, none)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		_ = s.Close()
	}
}

func TestParseSubnet(t *testing.T) {
	for text, want := range map[string]string{
		"10.213.0.0/20":    "",
		"192.168.77.0/24":  "",
		"172.30.0.0/29":    "",
		"10.213.0.1/20":    "want 10.213.0.0/20",
		"10.213.0.0":       "is not a subnet",
		"":                 "is not a subnet",
		"fd00::/64":        "is not a subnet",
		"10.0.0.0/30":      "length of 30",
		"198.51.100.0/24":  "is not private",
		"10.213.0.0/20 ok": "is not a subnet",
	} {
		p, err := network.ParseSubnet(text)
		if want == "" && (err != nil || p.String() != text) {
			t.Errorf("%q: got %v, %v", text, p, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, %v, want an error with %q", text, p, err, want)
		}
	}
}

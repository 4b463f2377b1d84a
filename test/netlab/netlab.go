// Package netlab makes small networks of network namespaces, for tests across machines. Their hosts reach only each
// other, over a bridge of their own. A test cuts links, in one direction or both, with the kernel's packet filter, and
// slows them down with a proxy.
//
// A lab belongs to one test, needs root, and is removed when the test ends. Only Dial may be called concurrently.
package netlab

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/testkit"
)

// Lab is a network of hosts.
type Lab struct {
	tb    testing.TB
	id    string // part of every namespace's name
	space string // the namespace of the bridge
	hosts []*Host
}

// Host is one machine of a lab: a namespace with an address.
type Host struct {
	lab *Lab
	// Name is the host's name in the test, Address its IPv4 address, Space its namespace.
	Name, Address, Space string

	slow map[int]*proxy // by port
}

// New makes a network without hosts.
func New(tb testing.TB) *Lab {
	tb.Helper()
	testkit.NeedRoot(tb)
	testkit.NeedCommand(tb, "ip")
	testkit.NeedCommand(tb, "nft")
	dir, err := os.MkdirTemp("", "berthlab") //nolint:usetesting // only its unique name is of use
	if err != nil {
		tb.Fatal(err)
	}
	_ = os.Remove(dir)
	l := &Lab{tb: tb, id: filepath.Base(dir)}
	l.space = l.id + "-net"
	l.addSpace(l.space)
	l.in(l.space, "ip", "link", "add", "lan", "type", "bridge")
	l.in(l.space, "ip", "link", "set", "lan", "up")
	return l
}

// Add makes a host. At most 250 fit.
func (l *Lab) Add(name string) *Host {
	l.tb.Helper()
	h := &Host{
		lab: l, Name: name, Space: l.id + "-" + name, slow: map[int]*proxy{},
		Address: fmt.Sprintf("10.77.0.%d", len(l.hosts)+1),
	}
	l.addSpace(h.Space)
	port := fmt.Sprintf("p%d", len(l.hosts)+1)
	l.in(l.space, "ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", h.Space)
	l.in(l.space, "ip", "link", "set", port, "master", "lan", "up")
	l.in(h.Space, "ip", "address", "add", h.Address+"/24", "dev", "eth0")
	l.in(h.Space, "ip", "link", "set", "eth0", "up")
	l.in(h.Space, "nft", "add table ip lab; "+
		"add chain ip lab cut { type filter hook input priority 0; }; "+
		"add chain ip lab slow { type nat hook prerouting priority -100; }")
	l.hosts = append(l.hosts, h)
	return h
}

// addSpace makes a namespace that goes with the test.
func (l *Lab) addSpace(name string) {
	l.tb.Helper()
	l.run("ip", "netns", "add", name)
	l.tb.Cleanup(func() { l.run("ip", "netns", "delete", name) })
	l.in(name, "ip", "link", "set", "lo", "up")
}

// in runs a command within a namespace.
func (l *Lab) in(space string, command ...string) {
	l.tb.Helper()
	l.run(append([]string{"ip", "netns", "exec", space}, command...)...)
}

func (l *Lab) run(command ...string) {
	l.tb.Helper()
	var said bytes.Buffer
	c := exec.Command(command[0], command[1:]...) //nolint:noctx // short, and also run while the test ends
	c.Stdout, c.Stderr = &said, &said
	if err := c.Run(); err != nil {
		l.tb.Fatalf("%s: %v: %s", strings.Join(command, " "), err, &said)
	}
}

// Cut drops what goes from one host to another, until Heal. The other direction stays open.
func (l *Lab) Cut(from, to *Host) {
	l.tb.Helper()
	l.in(to.Space, "nft", "add rule ip lab cut ip saddr "+from.Address+" drop")
}

// Part cuts both directions between two hosts.
func (l *Lab) Part(a, b *Host) {
	l.tb.Helper()
	l.Cut(a, b)
	l.Cut(b, a)
}

// Isolate cuts a host off from all others.
func (l *Lab) Isolate(h *Host) {
	l.tb.Helper()
	for _, other := range l.hosts {
		if other != h {
			l.Part(h, other)
		}
	}
}

// Heal opens all links again. Slow ones stay slow.
func (l *Lab) Heal() {
	l.tb.Helper()
	for _, h := range l.hosts {
		l.in(h.Space, "nft", "flush chain ip lab cut")
	}
}

// Wrap returns the command that runs another one on the host.
func (h *Host) Wrap(command ...string) []string {
	return append([]string{"ip", "netns", "exec", h.Space}, command...)
}

// Dial connects from the host to an address, which holds no name. Safe for concurrent use.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := h.enter(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen opens a TCP port on the host, at an address that holds no name.
func (h *Host) Listen(address string) (l net.Listener, err error) {
	err = h.enter(func() (err error) {
		l, err = new(net.ListenConfig).Listen(context.Background(), "tcp4", address)
		return err
	})
	return l, err
}

// enter calls do on a thread that is in the host's namespace. A socket stays in the namespace that it was made in.
func (h *Host) enter(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		done <- func() error {
			space, err := os.Open("/var/run/netns/" + h.Space)
			if err != nil {
				return fmt.Errorf("open the namespace of %s: %w", h.Name, err)
			}
			defer func() { _ = space.Close() }() // it was only read
			if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("enter the namespace of %s: %w", h.Name, err)
			}
			return do()
		}()
	}()
	return <-done
}

// Do calls do on a thread that is in the host's namespace, which ends with it: what do starts, and the sockets that it
// opens, are there. Safe for concurrent use.
func (h *Host) Do(do func() error) error { return h.enter(do) }

package machines

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/netlab"
)

const (
	// bootLimit is how long an emulated machine may take until its SSH server answers, and commandLimit how long a
	// command of a test may take there.
	bootLimit    = 5 * time.Minute
	commandLimit = 2 * time.Minute
)

// VM is an emulated machine with a kernel, a service manager and a disk of its own. Its network is that of the
// emulator: the SSH port of its host in the lab leads to it, and all that it connects to sees the address of that host.
// It belongs to one test, and needs root.
type VM struct {
	*netlab.Host

	// HostKey is the fingerprint of the SSH server's key, and HostKeyLine its line for known_hosts without the address.
	HostKey, HostKeyLine string

	tb      testing.TB
	disk    string
	command *exec.Cmd
	config  ssh.ClientConfig
}

// StartVM boots a copy of the files of a folder on a host of a network, and waits until its SSH server answers. The
// server accepts the keys in /etc/ssh/authorized, where the given one is written. accel is the accelerator of qemu.
func StartVM(tb testing.TB, root, accel string, on *netlab.Host, key Key) *VM {
	tb.Helper()
	testkit.NeedRoot(tb)
	testkit.NeedCommand(tb, "nsenter", "mke2fs", "qemu-system-x86_64")
	m := &VM{Host: on, tb: tb, disk: filepath.Join(tb.TempDir(), "disk")}
	m.readKey(filepath.Join(root, "etc/ssh/ssh_host_ed25519_key.pub"))
	authorized := filepath.Join(root, "etc/ssh/authorized")
	if err := os.WriteFile(authorized, []byte(key.Public+"\n"), 0o644); err != nil { //nolint:gosec // a public key
		tb.Fatal(err)
	}
	disk := exec.CommandContext(tb.Context(), "mke2fs", "-q", "-t", "ext4", "-d", root, m.disk, "4G")
	if out, err := disk.CombinedOutput(); err != nil {
		tb.Fatalf("make the disk: %v: %s", err, out)
	}
	private, err := os.ReadFile(key.File)
	if err != nil {
		tb.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(private)
	if err != nil {
		tb.Fatal(err)
	}
	m.config.User, m.config.Auth = "root", []ssh.AuthMethod{ssh.PublicKeys(signer)}
	m.start(root, accel)
	m.awaitBoot("")
	return m
}

// readKey reads the key of the SSH server.
func (m *VM) readKey(file string) {
	m.tb.Helper()
	line, err := os.ReadFile(file)
	if err != nil {
		m.tb.Fatal(err)
	}
	public, _, _, _, err := ssh.ParseAuthorizedKey(line)
	if err != nil {
		m.tb.Fatal(err)
	}
	m.HostKey = ssh.FingerprintSHA256(public)
	m.config.HostKeyCallback, m.config.HostKeyAlgorithms = ssh.FixedHostKey(public), []string{public.Type()}
	m.HostKeyLine = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(public)))
}

// start starts the emulator.
func (m *VM) start(root, accel string) {
	m.tb.Helper()
	one := func(pattern string) string {
		found, err := filepath.Glob(filepath.Join(root, "boot", pattern))
		if err != nil || len(found) != 1 {
			m.tb.Fatalf("%s has the files %v for %s, want one", root, found, pattern)
		}
		return found[0]
	}
	cpu := "max"
	if accel != "tcg" {
		cpu = "host"
	}
	console := m.disk + ".console"
	m.command = exec.Command("nsenter", "--net=/var/run/netns/"+m.Space, //nolint:noctx // the cleanup ends it
		"qemu-system-x86_64", "-accel", accel, "-cpu", cpu, "-smp", "2", "-m", "2G", "-display", "none",
		"-monitor", "none", "-serial", "file:"+console, "-drive", "file="+m.disk+",if=virtio,format=raw,cache=unsafe",
		"-nic", "user,model=virtio-net-pci,hostfwd=tcp:"+m.Address+":22-:22", "-kernel", one("vmlinuz-*"),
		"-initrd", one("initrd.img-*"), "-append", "root=/dev/vda rw console=ttyS0")
	m.command.Stderr = os.Stderr
	if err := m.command.Start(); err != nil {
		m.tb.Fatal(err)
	}
	m.tb.Cleanup(func() {
		_ = m.command.Process.Kill() // nsenter became the emulator
		err := m.command.Wait()
		if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
			m.tb.Error(err)
		}
		if said, err := os.ReadFile(console); err == nil && m.tb.Failed() {
			m.tb.Logf("the end of the console:\n%s", said[max(0, len(said)-4000):])
		}
	})
}

// bootID identifies a boot of a machine.
const bootID = "cat /proc/sys/kernel/random/boot_id"

// awaitBoot waits until the machine answers in another boot than one.
func (m *VM) awaitBoot(other string) {
	m.tb.Helper()
	testkit.Eventually(m.tb, bootLimit, func() error {
		ctx, cancel := context.WithTimeout(m.tb.Context(), 30*time.Second)
		defer cancel()
		is, err := m.run(ctx, bootID, nil)
		if err == nil && is == other {
			err = errors.New("it runs in the boot before")
		}
		return err
	})
}

// Boot runs a command that boots the machine, such as "reboot", and waits until the machine answers again.
func (m *VM) Boot(line string) {
	m.tb.Helper()
	before := m.Run(bootID)
	_, _ = m.Try(line) // it may end before it answers
	m.awaitBoot(before)
}

// Run runs a command of a shell on the machine, as root, and returns its output.
func (m *VM) Run(line string) string {
	m.tb.Helper()
	out, err := m.Try(line)
	if err != nil {
		m.tb.Fatalf("on %s: %s: %v: %s", m.Name, line, err, out)
	}
	return out
}

// Try is Run for a command that may fail.
func (m *VM) Try(line string) (string, error) {
	ctx, cancel := testkit.WithLimit(m.tb.Context(), commandLimit)
	defer cancel()
	return m.run(ctx, line, nil)
}

// run runs a command over a connection of its own, so that a boot leaves none.
func (m *VM) run(ctx context.Context, line string, stdin io.Reader) (string, error) {
	address := net.JoinHostPort(m.Address, "22")
	conn, err := m.Dial(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	wire, channels, requests, err := ssh.NewClientConn(conn, address, &m.config)
	if err != nil {
		return "", errors.Join(err, conn.Close())
	}
	c := ssh.NewClient(wire, channels, requests)
	defer func() { _ = c.Close() }()
	session, err := c.NewSession()
	if err != nil {
		return "", err
	}
	var out, said bytes.Buffer
	session.Stdin, session.Stdout, session.Stderr = stdin, &out, &said
	if err = session.Run(line); err != nil {
		err = fmt.Errorf("%w: %s", err, &said)
	}
	return strings.TrimSpace(out.String()), err
}

// Send writes a file of this machine to a path of the machine. The copy is executable.
func (m *VM) Send(file, to string) {
	m.tb.Helper()
	f, err := os.Open(file)
	if err != nil {
		m.tb.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	ctx, cancel := testkit.WithLimit(m.tb.Context(), commandLimit)
	defer cancel()
	if out, err := m.run(ctx, "cat >"+to+" && chmod 700 "+to, f); err != nil {
		m.tb.Fatalf("send %s: %v: %s", file, err, out)
	}
}
